"""One entry of a top-level step: what all its ctx's share."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from functools import cached_property
from time import monotonic
from typing import Any, NoReturn, Protocol

from django.db import Error as DatabaseError
from django.db.models import Exists, OuterRef
from django.utils import timezone

from agentruns import build, encoding, trust
from agentruns.errors import DatabaseTrouble, Interruption, MisusedContext, Parked
from agentruns.models import Body, Call, Grant, Run, Step, Wait
from agentruns.models.fields import Corrupt
from agentruns.models.step import NewStep, seal_of
from agentruns.outcome import wait_for
from agentruns.persist import in_transaction, is_passing, persist
from agentruns.plan import Plan, StepFunction
from agentruns.replay import Finished, Replay

# A worker waits so long (seconds, for all calls of an entry together) before it lets the run park and take no process.
SHORT_WAIT_SECONDS = 3.0


class Authority(Protocol):
    """The living claim, as the heartbeat knows it."""

    lease: float

    def boundary(self) -> None:
        """Raises the Interruption that forbids new work now, if there is one."""

    def living(self) -> None:
        """Raises LeaseLost when the lease may have run out."""

    def renewed(self, sent_at: float) -> None:
        """A write at monotonic time `sent_at` has renewed the lease."""

    def pause(self, seconds: float) -> None:
        """Sleeps, but ends early when the worker should stop."""

    def limited(self, entry: "Entry", timeout: float) -> AbstractContextManager[None]:
        """Around the author's function: ends it after `timeout` seconds."""


class Entry:
    """The state of one execution of a top-level step. `path` may be an alias under which the run began it."""

    def __init__(
        self, run: Run, plan: Plan, step: StepFunction, path: str, number: int, authority: Authority, finished: set[str]
    ) -> None:
        self.run, self.plan, self.step, self.path, self.number = run, plan, step, path, number
        self.authority = authority
        self.finished = finished
        self.started_at = timezone.now()
        self.closed: Interruption | None = None
        self.inside = 0
        self.pending: list[NewStep] = []
        self.reads: set[str] = set()
        self.patience_ends: float | None = None

    def close(self, why: Interruption) -> NoReturn:
        """From here on every use of this entry's ctx raises `why`, and what the function returns is not kept."""
        self.closed = self.closed or why
        raise self.closed

    def check(self) -> None:
        if self.closed is not None:
            raise self.closed

    def boundary(self) -> None:
        """New durable work may begin, or the Interruption that forbids it is raised and closes the ctx."""
        self.check()
        try:
            self.authority.boundary()
        except Interruption as why:
            self.close(why)

    @contextmanager
    def ours(self) -> Iterator[None]:
        """Around our own use of the database: its trouble is not the author's exception.

        While `inside`, the heartbeat closes the ctx but raises nothing in the function: that could strike between a
        commit and our knowing of it. The ctx raises it on the way out.
        """
        self.check()
        if in_transaction() and not self.step.atomic:
            raise MisusedContext("ctx was used inside transaction.atomic(): what it keeps could be rolled back.")
        self.inside += 1
        try:
            yield
        except DatabaseError as error:
            self.close(DatabaseTrouble(f"{type(error).__name__}: {error}", is_passing=is_passing(error)))
        except Interruption as why:
            self.close(why)
        finally:
            self.inside -= 1
        self.check()

    @contextmanager
    def theirs(self) -> Iterator[None]:
        """Around the author's function where we call it inside `ours`: there the heartbeat may end it."""
        inside, self.inside = self.inside, 0
        try:
            yield
        finally:
            self.inside = inside

    def patience(self) -> float:
        """Seconds left of the short wait for answers in the worker."""
        if self.patience_ends is None:
            self.patience_ends = monotonic() + SHORT_WAIT_SECONDS
        return self.patience_ends - monotonic()

    @cached_property
    def steps(self) -> Replay:
        """Finished sub-steps of this top-level step."""
        return Replay(self.run, self.path)

    def replayed(self, path: str, kind: str) -> Finished | None:
        """The checkpoint of the sub-step at `path`; None while there is none. Raises MisusedContext for another kind:
        what was finished under this name is not what the code asks for by now."""
        row = self.steps.get(path)
        if row is not None and self.sound(row).kind != kind:
            raise MisusedContext(
                f"{path!r} is finished in this run, as {row.kind!r}, and the code makes it {kind!r} by now. Give that "
                "a name of its own."
            )
        return row

    def sound(self, row: Finished) -> Finished:
        """`row`, if it is what was stored. Of one that is not nothing is taken: it stops the run by name."""
        if row.is_broken:
            self.stop_for(row, "its seal is another")
        return row

    def learn(self, row: NewStep) -> None:
        """A finished sub-step whose value is safe elsewhere: its row goes into the next checkpoint."""
        self.pending.append(row)
        self.steps.add(row.path)

    def compare(self, path: str, before: str | None, by_now: str) -> None:
        """What was paid or done at `path` counts, even when the code would ask or send something else by now. Then the
        page says so, once. Both are fingerprints; `before` is None where none is known."""
        if before in (None, by_now) or path in self.diverged:
            return
        self.run.note("diverged", path=path)
        self.diverged.add(path)

    @cached_property
    def diverged(self) -> set[str]:
        return set(self.run.events.filter(kind="diverged").values_list("path", flat=True))

    @cached_property
    def calls(self) -> defaultdict[str, list[Call]]:
        """The calls of unfinished asks at or under this top-level step, by path, oldest first."""
        finished = Step.objects.filter(run=OuterRef("run"), top=OuterRef("top"), path=OuterRef("path"))
        calls = Call.objects.filter(~Exists(finished), run=self.run, top=self.path).defer("request", "partial")
        found: defaultdict[str, list[Call]] = defaultdict(list)
        for call in calls.order_by("number"):
            found[call.path].append(call)
        return found

    def wait_at(self, path: str) -> Wait | None:
        """The latest wait that was opened at `path`, open or closed."""
        return Wait.objects.filter(run=self.run, path=path).order_by("-opened_at").first()

    def output_of(self, path: str) -> tuple[Any, set[str]]:
        """Value and labels of a finished top-level step."""
        row = self.sound(Finished.at(self.run, path))
        return self.value_of(row), trust.read(row.labels)

    def value_of(self, row: Finished) -> Any:
        """The output of a finished step. One that cannot be read stops the run by name: nothing is made from it."""
        value = row.value()
        if isinstance(value, Corrupt):
            self.stop_for(row, value.reason)
        return value

    def stop_for(self, row: Finished, trouble: str) -> NoReturn:
        reason = f"The stored output of step {row.path} cannot be read ({trouble}). Repair it, then retry."
        self.close(Parked(wait_for(row.path, "operator", reason=reason), reason=reason))

    def checkpoint_part(self, row: NewStep, grant: Grant | None = None) -> None:
        """Keeps a finished sub-step, and whatever was learned before it, in one commit. `grant`: used up by it."""
        rows = [*self.pending, row]
        sent_at = monotonic()
        self.persist(
            lambda: self.run.checkpoint_part(rows, self.authority.lease, build.current(), grant),
            lambda: Step.at(self.run, row.path).filter(started_at=row.started_at, finished_at=row.finished_at).exists(),
        )
        self.pending.clear()
        self.authority.renewed(sent_at)
        self.steps.add(row.path)

    def persist(self, write: Callable[[], None], landed: Callable[[], bool]) -> None:
        """See persist.py; the limit is this entry's claim."""
        persist(self.authority, write, landed)


def checkpoint_row(entry: Entry, path: str, kind: str, value: Any, labels: set[str], began: datetime) -> NewStep:
    """The Step of a finished path, not yet written. Raises NotStorable for what JSON cannot keep."""
    text = encoding.dumps(value, exact=True)
    body, said = Body.beside(text), trust.written(labels)
    stored = {"labels": encoding.dumps(said)} | ({} if body or value is None else {"output": text})
    return NewStep(
        run_id=entry.run.pk, path=path, top=entry.path, kind=kind, output=None if body else value, body=body,
        labels=said, reads=sorted(entry.reads) if kind == "step" else [], started_at=began,
        finished_at=timezone.now(), prepared=stored,
        seal=seal_of(path, kind, stored.get("output"), body.sha256 if body else None, stored["labels"]),
    )  # fmt: skip
