"""`@step(atomic=True)`: the author's own database writes and the checkpoint are one transaction, so exactly once.

BEGIN → the function → Step, Attempt, next step and, last, the fence → COMMIT. Whatever goes wrong undoes all of it.
While it is open it holds SQLite's one write lock, and so has 5 s.
"""

from time import monotonic
from typing import Any, NoReturn

from django.db import Error as DatabaseError
from django.db import transaction

from agentruns.context import Context
from agentruns.entry import checkpoint_row
from agentruns.errors import MisusedContext
from agentruns.execution import FINISHED, Execution, ending_of, has_attempt
from agentruns.models.step import NewAttempt
from agentruns.outcome import Outcome, attempt_of
from agentruns.persist import in_transaction, leave_connection

ATOMIC_SECONDS = 5.0


class AtomicContext(Context):
    """What an atomic step is handed: `prior`, `task`, `params`, `key`, and nothing that keeps or sends something."""

    def _sub(self, name: str) -> str:
        self._entry.check()
        self._refuse(f"the sub-step {str(name)[:64]!r}")

    def external(self, value: Any, source: str) -> Any:
        self._refuse("ctx.external")

    def _refuse(self, what: str) -> NoReturn:
        raise MisusedContext(
            f"Step {self._path!r} is atomic and used {what}, which could be rolled back with it, or outlive it. "
            "An atomic step has prior, task, params and key; put the rest into a step of its own."
        )


class AtomicExecution(Execution):
    """As Execution, in one transaction. A lost COMMIT is looked up; when it did not land, nothing happened."""

    def outcome(self) -> Outcome:
        entry, ended = self.entry, attempt_of(self.entry, FINISHED)
        error: BaseException | None = None
        sent_at = monotonic()
        try:
            self.run(ended)
        except KeyboardInterrupt:
            raise
        except BaseException as raised:
            error = raised
        if in_transaction() or isinstance(error, DatabaseError):
            leave_connection()
        if isinstance(error, DatabaseError) and has_attempt(entry.run, ended):
            error = None
        if ending := ending_of(entry, error):
            return ending
        entry.authority.renewed(sent_at)
        return FINISHED

    def run(self, ended: NewAttempt) -> None:
        """From the function's end to the commit's answer the heartbeat raises nothing in here: `inside` says so."""
        entry = self.entry
        ctx = AtomicContext(entry, entry.path, entry.step.retries)
        seconds = min(entry.step.timeout, ATOMIC_SECONDS)
        try:
            with entry.authority.limited(entry, seconds), transaction.atomic(durable=True):
                value = entry.step.fn(ctx)
                entry.inside += 1
                entry.check()
                self.write([checkpoint_row(entry, entry.path, "step", value, ctx._labels, entry.started_at)], ended)
        finally:
            entry.inside = 0
