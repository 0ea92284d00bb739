"""`manage.py run ID`: one run, with its steps, calls, attempts, waits and events."""

import json
from argparse import ArgumentParser
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from agentruns.management import command
from agentruns.management.terminal import DEMO, indented, line, table
from agentruns.models import Run, Step
from agentruns.models.portrait import StepLine, iso, portrait, steps
from agentruns.models.receipt import Receipt, receipt
from agentruns.models.step_lines import WAITS_FOR
from agentruns.web.events import sentence
from agentruns.web.words import between, usd

EVENTS_SHOWN = 20
OUTPUT_CHARACTERS = 20_000
STEP_COLUMNS = ("STATUS", "STEP", ">ATTEMPTS", ">TOKENS", ">COST", ">TIME", "NOTE")


class Command(command.Command):
    help = "Shows one run; with --json everything that is known of it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        command.add_id(parser)
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        run = command.run_called(options["id"])
        if options["json"]:
            self.stdout.write(json.dumps(portrait(run), indent=2))
        else:
            self.stdout.write("\n\n".join(sheet(run)))


def sheet(run: Run) -> Iterator[str]:
    """The paragraphs of a run's page on a terminal."""
    paid = receipt(run)
    if run.is_demo:
        yield DEMO
    yield summary(run, paid)
    yield table(STEP_COLUMNS, [step_row(step) for step in steps(run, paid)])
    if paid.calls:
        calls = [(one.path, one.number, one.state, one.model, usd(one.cost), one.response_id) for one in paid.calls]
        yield table(("CALL AT", ">TRY", "STATE", "MODEL", ">COST", "RESPONSE"), calls)
    if troubled := list(run.attempts.filter(outcome__in=("failed", "interrupted")).order_by("ended_at", "pk")):
        rows = [(one.path, one.number, one.outcome, one.cause, one.worker, one.error) for one in troubled]
        yield table(("ATTEMPT AT", ">NUMBER", "OUTCOME", "CAUSE", "WORKER", "ERROR"), rows)
    if waits := list(run.waits.filter(closed_at=None).defer("payload").order_by("opened_at")):
        yield table(("WAITS AT", "FOR", "UNTIL"), [(one.path, WAITS_FOR[one.kind], moment(one.until)) for one in waits])
    yield table(("WHEN", "WHAT HAPPENED"), list(event_rows(run)))
    if result := last_output(run):
        yield result


def summary(run: Run, paid: Receipt) -> str:
    status = f"waiting for {WAITS_FOR[run.waiting_for]}" if run.waiting_for else str(run.status)
    money = [f"{usd(paid.spent)} of {usd(run.budget)}"]
    others = {"in flight": paid.reserved, "unknown": paid.unknown, "kept": paid.kept, "lost": paid.lost}
    money += [f"{word} {usd(amount)}" for word, amount in others.items() if amount]
    tokens = f"{paid.input:,} in ({paid.cached:,} cached), {paid.output:,} out ({paid.reasoning:,} reasoning)"
    parts = [
        ("Run", run.pk),
        ("Task", run.title),
        ("Plan", run.plan),
        ("Model", run.model),
        ("Status", f"{status}: {run.reason}" if run.reason and run.reason != run.status else status),
        ("Cost", ", ".join(money)),
        ("Tokens", tokens),
        ("Time", f"{between(run.created_at, run.ended_at)} since {moment(run.created_at)}"),
        ("By", run.owner.get_username() if run.owner else "nobody"),
    ]
    return "\n".join(f"{name:<7} {line(value)}" for name, value in parts)


def step_row(step: StepLine) -> tuple[object, ...]:
    tokens = step.tokens["input"] + step.tokens["output"]
    is_over = step.status in {"finished", "failed", "cancelled"}
    is_timed = step.started_at and (step.finished_at or not is_over)
    return (
        step.status.replace("_", " "),
        step.path,
        step.attempts or "",
        f"{tokens:,}" if tokens else "",
        usd(step.cost) if step.cost else "",
        between(step.started_at, step.finished_at) if is_timed and step.started_at else "",
        step.error or (f"for {step.waiting}" if step.waiting else ""),
    )


def event_rows(run: Run) -> Iterator[tuple[str, str]]:
    events = list(run.events.select_related("by").order_by("-version", "-pk")[: EVENTS_SHOWN + 1])
    if len(events) > EVENTS_SHOWN:
        yield "", f"(the last {EVENTS_SHOWN}; --json has all)"
    for event in reversed(events[:EVENTS_SHOWN]):
        told = sentence(event)
        yield moment(event.at), f"{told.lead}{told.rest}"


def last_output(run: Run) -> str:
    """What the last finished top-level step gave: the result, once the run is completed."""
    last = Step.objects.filter(run=run, kind="step").select_related("body").order_by("finished_at", "pk").last()
    if last is None:
        return ""
    value = last.value()
    words = value if isinstance(value, str) else json.dumps(value, indent=2, default=repr)
    more = f"\n… {len(words) - OUTPUT_CHARACTERS:,} characters more: --json" if len(words) > OUTPUT_CHARACTERS else ""
    return f"OUTPUT OF {last.path}\n{indented(words[:OUTPUT_CHARACTERS] + more)}"


def moment(at: datetime | None) -> str:
    return (iso(at) or "")[:19].replace("T", " ") + (" UTC" if at else "")
