"""Everything that a run's page shows, read once: a constant number of queries, however many steps the run has."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.http import HttpRequest
from django.utils import timezone

from agentruns.models import Event, Run, Status
from agentruns.models.portrait import StepLine, steps
from agentruns.models.receipt import Receipt, receipt
from agentruns.web.detail import Detail, chosen, detail
from agentruns.web.events import Sentence, sentence
from agentruns.web.output import as_text
from agentruns.web.share import Share
from agentruns.web.waterfall import Waterfall, waterfall
from agentruns.web.why import Why, why
from agentruns.web.words import visible

EVENTS, ALL_EVENTS = 12, 500
# Waits that end by themselves, soon; and those that Run.retry ends at once.
MOVING = {"model", "retry", "timer", "slot"}
# A run that has waited in the queue for longer than this, and was never taken up, is not about to be.
FRESH = timedelta(minutes=1)
RETRIED = {"retry", "operator", "provider"}


class View(NamedTuple):
    """What of the run was asked for in the URL; a poll asks for the same."""

    step: str
    text: bool
    opened: str
    real: bool
    events: bool

    @classmethod
    def asked_by(cls, request: HttpRequest) -> "View":
        asked = request.GET
        return cls(
            asked.get("step", "")[:200], "text" in asked, asked.get("open", "")[:64], "real" in asked, "events" in asked
        )

    def query(self, **changed: Any) -> str:
        """The query string of this view, with changes; "" for the plain page."""
        view = self._replace(**changed)
        given = {
            "step": view.step,
            "text": int(view.text),
            "open": view.opened,
            "real": int(view.real),
            "events": int(view.events),
        }
        query = urlencode({name: value for name, value in given.items() if value})
        return f"?{query}" if query else ""


@dataclass
class Counts:
    """Top-level steps by what has become of them."""

    done: int
    total: int
    running: int
    waiting: int
    failed: int
    to_come: int


@dataclass
class Sheet:
    run: Run
    view: View
    paid: Receipt
    counts: Counts
    waterfall: Waterfall
    detail: Detail | None
    why: Why | None
    happened: list[tuple[Event, Sentence]]
    more_events: bool
    open_calls: int

    @property
    def is_settled(self) -> bool:
        """Nothing about it can change any more: polls end. A run may end with calls whose cost is still to come."""
        return self.run.is_ended and not self.open_calls

    @property
    def base(self) -> int:
        """Milliseconds between polls while things change: sooner where the next change is near."""
        run = self.run
        is_fresh = run.status == Status.QUEUED and (run.started_at or timezone.now() - run.created_at < FRESH)
        return 2000 if run.status == Status.RUNNING or run.waiting_for in MOVING or is_fresh else 5000

    @property
    def can_cancel(self) -> bool:
        return not self.run.is_ended and self.run.cancel_requested_at is None

    @property
    def can_retry(self) -> bool:
        is_stuck = self.run.status == Status.WAITING and self.run.waiting_for in RETRIED
        return self.run.status == Status.FAILED or (is_stuck and self.run.paused_at is None)

    @property
    def can_pause(self) -> bool:
        return self.can_cancel and self.run.paused_at is None

    @property
    def can_resume(self) -> bool:
        return self.can_cancel and self.run.paused_at is not None

    @property
    def share(self) -> Share:
        return Share.of(self.run)

    @property
    def tokens_total(self) -> int:
        return self.paid.input + self.paid.output

    @property
    def params(self) -> str:
        return visible(as_text(self.run.params))

    @property
    def cached_percent(self) -> int:
        return round(100 * self.paid.cached / self.paid.input) if self.paid.input else 0


def sheet(run: Run, view: View) -> Sheet:
    """The page of `run`, as `view` asks for it."""
    paid = receipt(run)
    lines = steps(run, paid)
    line = chosen(run, lines, view.step)
    limit = ALL_EVENTS if view.events else EVENTS
    events = list(Event.objects.filter(run=run).select_related("by").order_by("-version", "-pk")[: limit + 1])
    fall = waterfall(run, lines, paid, opened=view.opened, shrink=not view.real)
    for row in fall.rows:
        row.href = view.query(step=row.line.path) if row.line else view.query(opened=row.under)
    return Sheet(
        run=run,
        view=view,
        paid=paid,
        counts=_counts(lines),
        waterfall=fall,
        detail=detail(run, line, paid) if line else None,
        why=why(run),
        happened=[(event, sentence(event)) for event in events[:limit]],
        more_events=len(events) > limit,
        open_calls=sum(call.is_open for call in paid.calls),
    )


def _counts(lines: list[StepLine]) -> Counts:
    tops = [line.status for line in lines if line.depth == 0]
    return Counts(
        done=tops.count("finished"),
        total=len(tops),
        running=tops.count("running"),
        waiting=tops.count("waiting"),
        failed=tops.count("failed"),
        to_come=tops.count("to_come"),
    )
