"""A run as JSON: what `run ID --json` prints and the API answers (DESIGN.md, section 8)."""

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from agentruns.models.event import Event
from agentruns.models.fields import Corrupt
from agentruns.models.receipt import Receipt, receipt
from agentruns.models.step import Attempt, Step
from agentruns.models.step_lines import StepLine, steps
from agentruns.models.wait import Wait

__all__ = ["StepLine", "portrait", "steps"]


def portrait(run: Any) -> dict[str, Any]:
    """`run` with everything under it, of JSON types only; a constant number of queries.

    Money is USD as decimal text, times are ISO 8601 UTC, tokens are counts. `waits` are the open ones. Totals are the
    sums of the rows listed with them. An output that retention deleted is null.
    """
    paid = receipt(run)
    return {
        **head(run),
        "task": plain(run.task),
        "params": plain(run.params),
        "at": {"path": run.at_path, "number": run.at_number, "since": iso(run.at_since)},
        "spent_usd": usd(paid.spent),
        "reserved_usd": usd(paid.reserved),
        "unknown_usd": usd(paid.unknown),
        "kept_usd": usd(paid.kept),
        "lost_usd": usd(paid.lost),
        "tokens": paid.tokens,
        "steps": list(_steps(run, paid)),
        "calls": [_call(call) for call in paid.calls],
        "attempts": list(_attempts(run)),
        "waits": list(_waits(run)),
        "events": list(_events(run)),
        "interruptions": paid.interruptions,
    }


def head(run: Any) -> dict[str, Any]:
    """What the run's own row says, without a query but for its owner: a row of `runs --json`."""
    return {
        "id": str(run.pk),
        "plan": run.plan,
        "title": run.title,
        "status": run.status,
        "waiting_for": run.waiting_for,
        "reason": plain(run.reason),
        "model": run.model,
        "demo": run.is_demo,
        "owner": run.owner.get_username() if run.owner else None,
        "version": run.version,
        "created_at": iso(run.created_at),
        "started_at": iso(run.started_at),
        "ended_at": iso(run.ended_at),
        "wake_at": iso(run.wake_at),
        "budget_usd": usd(run.budget),
        "spent_usd": usd(run.spent),
        "reserved_usd": usd(run.reserved),
        "unknown_usd": usd(run.unknown),
    }


def _steps(run: Any, paid: Receipt) -> Iterator[dict[str, Any]]:
    outputs = {row.path: row.value() for row in Step.objects.filter(run=run).select_related("body")}
    for line in steps(run, paid):
        yield {
            "path": line.path,
            "title": line.title,
            "kind": line.kind,
            "status": line.status,
            "attempts": line.attempts,
            "cost_usd": usd(line.cost),
            "tokens": line.tokens,
            "output": plain(outputs.get(line.path)),
            "started_at": iso(line.started_at),
            "finished_at": iso(line.finished_at),
            "labels": line.labels,
            "error": line.error,
            "waiting": line.waiting,
        }


def _call(call: Any) -> dict[str, Any]:
    return {
        "path": call.path,
        "number": call.number,
        "attempt": call.attempt,
        "model": call.model,
        "provider": call.provider,
        "state": call.state,
        "response_id": call.response_id,
        "background": call.background,
        "maybe_twice": call.maybe_twice,
        "cost_usd": usd(call.cost),
        "reserved_usd": usd(call.reserved),
        "price": plain(call.price),
        "price_source": call.price_source,
        "tokens": {
            "input": call.input_tokens,
            "cached": call.cached_tokens,
            "output": call.output_tokens,
            "reasoning": call.reasoning_tokens,
        },
        "tier": call.tier,
        "error": plain(call.error),
        "created_at": iso(call.created_at),
        "settled_at": iso(call.settled_at),
    }


def _attempts(run: Any) -> Iterator[dict[str, Any]]:
    for attempt in Attempt.objects.filter(run=run).defer("traceback").order_by("ended_at", "pk"):
        yield {
            "path": attempt.path,
            "number": attempt.number,
            "outcome": attempt.outcome,
            "cause": attempt.cause,
            "worker": attempt.worker,
            "build": attempt.build,
            "started_at": iso(attempt.started_at),
            "ended_at": iso(attempt.ended_at),
            "error": plain(attempt.error),
        }


def _waits(run: Any) -> Iterator[dict[str, Any]]:
    for wait in Wait.objects.filter(run=run, closed_at=None).order_by("opened_at", "pk"):
        yield {
            "path": wait.path,
            "kind": wait.kind,
            "until": iso(wait.until),
            "payload": plain(wait.payload),
            "opened_at": iso(wait.opened_at),
        }


def _events(run: Any) -> Iterator[dict[str, Any]]:
    for event in Event.objects.filter(run=run).select_related("by").order_by("version", "pk"):
        yield {
            "at": iso(event.at),
            "kind": event.kind,
            "version": event.version,
            "path": event.path,
            "by": event.by.get_username() if event.by else None,
            "about": plain(event.about),
        }


def usd(amount: Decimal) -> str:
    """Every digit that the ledger has, and at least cents: 5.00, 0.0012."""
    digits = format(amount, "f")
    whole, _, fraction = digits.partition(".")
    return f"{whole}.{fraction.rstrip('0').ljust(2, '0')}"


def iso(at: datetime | None) -> str | None:
    if at is None:
        return None
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def plain(value: Any) -> Any:
    """A stored value, or what is left of one that the database no longer has right."""
    return {"corrupt": value.reason, "text": value.text} if isinstance(value, Corrupt) else value
