"""The bars of a run's waterfall: what ran when, what was cut off, what waited, and where it was taken up again."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from django.utils import timezone

from agentruns.models import Attempt, Run, Wait
from agentruns.models.call import OPEN
from agentruns.models.receipt import Receipt
from agentruns.models.step_lines import StepLine
from agentruns.web.axis import Axis, Span
from agentruns.web.words import duration

SETBACKS = ("interrupted", "failed")
TONES = {
    "to_come": "f-idle",
    "running": "f-run",
    "waiting": "f-res",
    "finished": "f-ok",
    "failed": "f-bad",
    "cancelled": "f-idle",
}
CAUSES = {"crash": "worker died", "lease": "worker lost", "deploy": "deploy", "timeout": "time limit"}

# Of the axis, between two marks: so much leaves room for words beside the other's, and so much for a figure.
WORDS_PERCENT, FIGURE_PERCENT = 55.0, 25.0


class Bar(NamedTuple):
    """One SVG rectangle: x and width in percent, kind as a CSS class, title as its tooltip."""

    x: str
    width: str
    kind: str
    title: str


class Resume(NamedTuple):
    """Where a run went on after an interruption: after what, and how long nothing ran."""

    x: str
    label: str
    anchor: str


class Bars:
    """Everything that is drawn of one run, on one axis. `shrink`: long times when nothing ran are drawn short."""

    def __init__(self, run: Run, paid: Receipt, shrink: bool) -> None:
        self.run = run
        self.end = run.ended_at if run.is_ended and run.ended_at else timezone.now()
        self.attempts: defaultdict[str, list[Attempt]] = defaultdict(list)
        self.waits: defaultdict[str, list[Wait]] = defaultdict(list)
        begun = Attempt.objects.filter(run=run, started_at__isnull=False).defer("traceback", "error")
        for attempt in begun.order_by("started_at", "pk"):
            self.attempts[attempt.path].append(attempt)
        for wait in Wait.objects.filter(run=run).defer("payload").order_by("opened_at", "pk"):
            self.waits[wait.path.partition("/")[0]].append(wait)
        busy = list(self._busy(paid))
        self.axis = Axis(run.created_at, (self.end - run.created_at).total_seconds(), busy, shrink)

    def _busy(self, paid: Receipt) -> Iterator[Span]:
        """Time at work: attempts, and calls, which the provider works on while no process is held."""
        for attempt in self._all():
            yield self._span(attempt.started_at, attempt.ended_at)
        for call in paid.calls:
            yield self._span(call.created_at, call.settled_at or (None if call.state in OPEN else call.created_at))
        if self.run.at_since:
            yield self._span(self.run.at_since, None)

    def _all(self) -> Iterator[Attempt]:
        for attempts in self.attempts.values():
            yield from attempts

    def _span(self, start: datetime | None, end: datetime | None) -> Span:
        """Seconds of the run; without an end, until now."""
        first = ((start or self.end) - self.run.created_at).total_seconds()
        return Span(first, max(first, ((end or self.end) - self.run.created_at).total_seconds()))

    def _bar(self, span: Span, kind: str, title: str) -> Bar:
        return Bar(*self.axis.place(span), kind, title)

    # --- of one line ---

    def of(self, line: StepLine) -> list[Bar]:
        if line.started_at is None:
            return []
        if line.depth:
            return [self._main(line, line.started_at, line.finished_at)]
        return [*self._tried(line), *self._waited(line)]

    def _tried(self, line: StepLine) -> Iterator[Bar]:
        """What was cut off or failed, each in its own bar; and the stretches before, between and after them."""
        since = line.started_at
        for attempt in self.attempts[line.path]:
            if attempt.outcome not in SETBACKS:
                continue
            if since and attempt.started_at and since < attempt.started_at:
                yield self._main(line, since, attempt.started_at)
            span = self._span(attempt.started_at, attempt.ended_at)
            yield self._bar(span, "lost", f"attempt {attempt.number} {attempt.outcome}, {duration(span.length)}")
            since = self._begun_after(line.path, attempt.ended_at)
        if since:
            yield self._main(line, since, line.finished_at)

    def _waited(self, line: StepLine) -> Iterator[Bar]:
        """Over the rest: the times in which it was not even the model that worked."""
        for wait in self.waits[line.path]:
            if wait.kind != "model":
                span = self._span(wait.opened_at, wait.closed_at)
                yield self._bar(span, "waited", f"waited for {wait.kind}, {duration(span.length)}")

    def _begun_after(self, path: str, moment: datetime) -> datetime | None:
        starts = [one.started_at for one in self.attempts[path] if one.started_at and one.started_at >= moment]
        if self.run.at_path == path and self.run.at_since and self.run.at_since >= moment:
            starts.append(self.run.at_since)
        return min(starts, default=None)

    def _main(self, line: StepLine, since: datetime, until: datetime | None) -> Bar:
        span = self._span(since, until)
        return self._bar(span, TONES[line.status], f"{line.title}, {duration(span.length)}")

    # --- across all lines ---

    def gaps(self) -> list[Bar]:
        return [self._bar(gap, "down", f"nothing ran for {duration(gap.length)}") for gap in self.axis.gaps]

    def resumes(self) -> Iterator[Resume]:
        """After each interruption, the next beginning of anything."""
        starts = sorted(one.started_at for one in self._all() if one.started_at)
        if self.run.at_since:
            starts.append(self.run.at_since)
        labelled = -WORDS_PERCENT
        for attempt in self._all():
            again = next((start for start in starts if start >= attempt.ended_at), None)
            if attempt.outcome == "interrupted" and again:
                percent = self.axis.percent(self._span(again, again).start)
                room = percent - labelled
                yield Resume(f"{percent:.2f}%", self._label(attempt, again, room), anchor_at(percent))
                labelled = percent if room >= FIGURE_PERCENT else labelled

    def _label(self, attempt: Attempt, again: datetime, room: float) -> str:
        """What happened and for how long nothing ran; less of it beside another label."""
        seconds = duration((again - attempt.ended_at).total_seconds())
        if room >= WORDS_PERCENT:
            return f"{CAUSES.get(attempt.cause, attempt.cause or 'interrupted')} {seconds}"
        return seconds if room >= FIGURE_PERCENT else ""


def anchor_at(percent: float) -> str:
    return "start" if percent < 20 else "end" if percent > 80 else "middle"
