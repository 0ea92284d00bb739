"""How one execution of a step ended: from the exception that left the function to what is written about it."""

import random
import traceback
from dataclasses import dataclass, field
from typing import Any

from agentruns import build
from agentruns.errors import (
    CancelAsked,
    DatabaseTrouble,
    DeadlinePassed,
    Draining,
    Interruption,
    ItemFailed,
    Parked,
    PauseAsked,
    PermanentError,
    RetryLater,
    SliceOver,
)
from agentruns.models import Wait
from agentruns.models.step import NewAttempt

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 2.0, 300.0


@dataclass
class Outcome:
    """`kind`: finished, failed, retry, parked, released or cancelled; `cause`: of a release or an interruption."""

    kind: str
    error: BaseException | None = None
    waits: list[Wait] = field(default_factory=list)
    reason: str = ""
    cause: str = ""

    @property
    def of_attempt(self) -> str:
        """The same in the words of Attempt.outcome."""
        if self.cause in {"database", "deploy", "lease"}:
            return "interrupted"
        return {"retry": "failed", "released": "parked"}.get(self.kind, self.kind)


def of_failure(error: BaseException, *, path: str, failures: int, retries: int) -> Outcome:
    """Tried again after a pause, unless `error` says that this would not help, or all `retries` were used up before."""
    reason = described(error)[:1000]
    root = error.error if isinstance(error, ItemFailed) else error
    if isinstance(root, PermanentError) or failures >= retries:
        return Outcome("failed", error, reason=reason)
    seconds = root.seconds if isinstance(root, RetryLater) else pause_after(failures)
    return Outcome("retry", error, [wait_for(path, "retry", seconds=seconds)], reason)


def of_interruption(why: Interruption, *, path: str, entries: int) -> Outcome | None:
    """What of ours ended an entry, as its outcome; None: the claim is lost, and nothing may be written."""
    match why:
        case Parked():
            return Outcome("parked", waits=[one for one in why.waits if isinstance(one, Wait)], reason=why.reason)
        case CancelAsked():
            return Outcome("cancelled")
        case Draining():
            return Outcome("released", cause="drain")
        case PauseAsked():
            return Outcome("released", cause="pause")
        case SliceOver():
            return Outcome("released", cause="slice")
        case DeadlinePassed():
            return Outcome("failed", why, reason=str(why))
        case DatabaseTrouble():
            return Outcome("parked", why, [wait_for_database(path, why, entries)], reason=str(why), cause="database")
        case _:
            return None


def wait_for_database(path: str, why: DatabaseTrouble, entries: int) -> Wait:
    """After a pause: a trouble that lasts would else be met again at once, by one worker after another. What will not
    pass by itself is for a person."""
    if why.is_passing:
        return wait_for(path, "retry", seconds=pause_after(entries), reason=str(why))
    return wait_for(path, "operator", reason=str(why))


def pause_after(times: int) -> float:
    """Seconds, after so many that were in vain: 2 s doubling to 5 min, ±20 %."""
    return min(FIRST_PAUSE_SECONDS * 2 ** min(times, 16), LONGEST_PAUSE_SECONDS) * random.uniform(0.8, 1.2)  # noqa: S311


def wait_for(path: str, kind: str, *, seconds: float | None = None, reason: str = "") -> Wait:
    """A Wait that is not stored yet; `seconds` count from when it is."""
    wait = Wait(path=path, kind=kind, payload={"reason": reason} if reason else None)
    wait.seconds = seconds  # type: ignore[attr-defined]
    return wait


def attempt_of(entry: Any, outcome: Outcome) -> NewAttempt:
    """The row of the execution that `entry` was."""
    error = outcome.error
    return NewAttempt(
        run_id=entry.run.pk, path=entry.path, number=entry.number, worker=entry.run.worker, build=build.current(),
        started_at=entry.started_at, outcome=outcome.of_attempt, cause=outcome.cause,
        error=described(error)[:2000] if error else "", traceback=traced(error) if error else "",
    )  # fmt: skip


def described(error: BaseException) -> str:
    """Type and message. An author's exception may itself fail to say what it is."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__} (its message cannot be read)"


def traced(error: BaseException) -> str:
    """The traceback's last 20,000 characters."""
    try:
        return "".join(traceback.format_exception(error))[-20_000:]
    except Exception as trouble:
        return f"The traceback cannot be written: {type(trouble).__name__}"
