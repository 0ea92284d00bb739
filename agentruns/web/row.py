"""One run in the list: what its other tables say about it, for a page of runs in a constant number of queries."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from django.db.models import Count, F

from agentruns.models import Attempt, Run, Status, Step
from agentruns.models.step_lines import declared_steps
from agentruns.web.share import Share
from agentruns.web.words import pill

# Steps that a spark shows one by one; more are drawn as one bar.
CELLS = 40
SPARK = {"ok": "f-ok", "bad": "f-bad", "wait": "f-wait", "run": "f-run", "idle": "f-idle"}


class Cell(NamedTuple):
    """One rectangle of the spark: x and width in percent, kind as a CSS class."""

    x: str
    width: str
    kind: str


@dataclass
class Row:
    """`done` of `steps` top-level steps are finished; `resumes`: interruptions it came through."""

    run: Run
    done: int
    steps: int
    resumes: int

    @property
    def share(self) -> Share:
        return Share.of(self.run)

    @property
    def spark(self) -> list[Cell]:
        """Done steps, the one at hand in the colour of the run's status, and those to come."""
        if not self.steps:
            return []
        if self.steps > CELLS:
            return [Cell("0%", "100%", "f-idle"), Cell("0%", f"{100 * self.done / self.steps:.1f}%", self._done_kind)]
        return list(self._cells())

    def _cells(self) -> Iterator[Cell]:
        width = 100 / self.steps
        for n in range(self.steps):
            kind = self._done_kind if n < self.done else self._kind_at_hand if n == self.done else "f-idle"
            yield Cell(f"{n * width:.2f}%", f"{width * 0.88:.2f}%", kind)

    @property
    def _done_kind(self) -> str:
        return "f-ok" if self.run.is_ended and self.run.status != Status.CANCELLED else "f-done"

    @property
    def _kind_at_hand(self) -> str:
        if self.run.status in {Status.QUEUED, Status.CANCELLED}:
            return "f-idle"
        tone = pill(self.run).tone
        return "f-res" if tone == "run" else SPARK[tone]


def rows_of(runs: list[Run]) -> list[Row]:
    ids = [run.pk for run in runs]
    finished = Step.objects.filter(run__in=ids, path=F("top")).order_by()
    done = dict(finished.values_list("run").annotate(n=Count("pk")))
    interrupted = Attempt.objects.filter(run__in=ids, outcome="interrupted").exclude(cause="cancel").order_by()
    resumes = dict(interrupted.values_list("run").annotate(n=Count("pk")))
    return [_row(run, done.get(run.pk, 0), resumes.get(run.pk, 0)) for run in runs]


def _row(run: Run, done: int, resumes: int) -> Row:
    """A plan may have lost or gained steps since: a completed run has those that it did."""
    steps = done if run.status == Status.COMPLETED else max(len(declared_steps(run.plan)), done)
    return Row(run=run, done=done, steps=steps, resumes=resumes)
