"""One execution of a top-level step: the function is called once, and what it came to is an Outcome.

A value becomes the checkpoint, in one commit with the attempt and the next step; the engine does what else is to do.
"""

from dataclasses import dataclass
from time import monotonic

from agentruns import build
from agentruns.context import Context
from agentruns.entry import Entry, checkpoint_row
from agentruns.errors import Interruption, MisusedContext, StepTimeout
from agentruns.models import Attempt, Run
from agentruns.models.step import NewAttempt, NewStep
from agentruns.outcome import Outcome, attempt_of, of_failure, of_interruption
from agentruns.persist import in_transaction, leave_connection, persist

FINISHED = Outcome("finished")


@dataclass(frozen=True)
class Upcoming:
    """The step after the one at work: its path, None after the last one, and the number of its attempt."""

    path: str | None
    number: int


class Execution:
    """Of `entry`'s step."""

    def __init__(self, entry: Entry, upcoming: Upcoming) -> None:
        self.entry, self.upcoming = entry, upcoming

    def outcome(self) -> Outcome:
        """Calls the function, and keeps what it returned. Raises LeaseLost when the claim is over."""
        entry = self.entry
        ctx = Context(entry, entry.path, entry.step.retries)
        error: BaseException | None = None
        row: NewStep | None = None
        try:
            with entry.authority.limited(entry, entry.step.timeout):
                value = entry.step.fn(ctx)
            if in_transaction():
                raise MisusedContext("The step left a database transaction open; what it wrote in it is undone.")
            if entry.closed is None:
                row = checkpoint_row(entry, entry.path, "step", value, ctx._labels, entry.started_at)
        except KeyboardInterrupt:
            raise
        except BaseException as raised:  # also SystemExit and asyncio's CancelledError: the function's, not ours
            error = raised
        if in_transaction():
            leave_connection()
        if ending := ending_of(entry, error):
            return ending
        assert row is not None
        self.checkpoint(row)
        return FINISHED

    def checkpoint(self, row: NewStep) -> None:
        """The step is finished: its row, its attempt, and the next step, in one commit."""
        ended = attempt_of(self.entry, FINISHED)
        rows = [*self.entry.pending, row]
        sent_at = monotonic()
        persist(self.entry.authority, lambda: self.write(rows, ended), lambda: has_attempt(self.entry.run, ended))
        self.entry.authority.renewed(sent_at)

    def write(self, rows: list[NewStep], ended: NewAttempt) -> None:
        entry, upcoming = self.entry, self.upcoming
        entry.run.checkpoint(rows, ended, upcoming.path, upcoming.number, entry.authority.lease, build.current())


def ending_of(entry: Entry, error: BaseException | None) -> Outcome | None:
    """What left the function, or closed its ctx, as an outcome; None: its value counts."""
    if isinstance(error, Interruption):
        entry.closed = entry.closed or error
    if entry.closed is not None:  # the function let it out, or caught it and went on: its value does not count
        return interrupted(entry, entry.closed)
    if error is not None:
        return failed(entry, error)
    return None


def interrupted(entry: Entry, why: Interruption) -> Outcome:
    """Raises `why` when nothing may be written any more."""
    if isinstance(why, StepTimeout):  # of all that is ours, this alone is the step's own fault
        return failed(entry, why)
    outcome = of_interruption(why, path=entry.path, entries=entry.run.entries)
    if outcome is None:
        raise why
    return outcome


def failed(entry: Entry, error: BaseException) -> Outcome:
    return of_failure(error, path=entry.path, failures=entry.run.failures, retries=entry.step.retries)


def has_attempt(run: Run, ended: NewAttempt) -> bool:
    """Mine: one of the same number that a rescue wrote has another outcome."""
    mine = Attempt.objects.filter(run=run, path=ended.path, number=ended.number, outcome=ended.outcome)
    return mine.exists()
