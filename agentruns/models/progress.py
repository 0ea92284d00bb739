"""What a worker decides about the run that it holds. Each verb is one transaction and one conditional write."""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from django.db import connection, transaction
from django.db.models import F, Q

from agentruns import crash
from agentruns.errors import LeaseLost
from agentruns.models.body import Body
from agentruns.models.moment import in_seconds, now
from agentruns.models.outbox import FOR_PEOPLE, NEEDS_YOU
from agentruns.models.prepared import Insert, Slot, Update
from agentruns.models.status import Status
from agentruns.models.step import Attempt, NewAttempt, NewStep, Step
from agentruns.models.trait import Trait
from agentruns.models.wait import FAN_OUT_SECONDS, KINDS, Grant, Wait

NO_CLAIM: dict[str, Any] = {"holder": "", "lease_expires_at": None, "at_since": None}
# A new row of the run: whatever was counted as "no progress" starts again.
MOVED: dict[str, Any] = {"losses": 0, "entries": 0}

PATIENT = {"slot", "budget", "price", "provider"}


class Progress(Trait):
    """enter, checkpoint, park, fail, stop. All raise LeaseLost when the claim is over."""

    if TYPE_CHECKING:

        def is_ripe(self, waits: list[Wait]) -> bool: ...

        def wake(self, *, unrung: str = "") -> bool: ...

        def record_cancelled(self, by: Any = None, **about: Any) -> None: ...

        def obey_cancel(self) -> bool: ...

        def obey_pause(self) -> bool: ...

        def tell(self, kind: str, occasion: str, *, path: str = "", reason: str = "", wait: str = "") -> None: ...

    def enter(self, path: str, number: int, build: str) -> None:
        """Moves `at` to the top-level step `path`: when the code's next step is not the one that was expected."""
        self.change_held(at_path=path, at_number=number, at_since=now(), failures=0, build=build, **MOVED)

    def keep(self, steps: Iterable[NewStep]) -> None:
        """Inserts checkpoints; part of the caller's transaction, after its conditional write."""
        if rows := list(steps):
            with connection.cursor() as cursor:
                self._keep(cursor, rows)

    @staticmethod
    def _keep(cursor: Any, rows: list[NewStep]) -> None:
        if bodies := [row.body for row in rows if row.body is not None]:
            Body.store(bodies)
            crash.point("body-written")
        for row in rows:
            inserting(Step).execute(cursor, row)

    @staticmethod
    def book(ended: NewAttempt | None) -> None:
        """Inserts the attempt that ended; part of the caller's transaction, after its conditional write."""
        if ended is not None:
            with connection.cursor() as cursor:
                inserting(Attempt, timed="ended_at").execute(cursor, ended)

    def checkpoint_part(self, steps: Sequence[NewStep], lease: float, build: str, grant: Grant | None = None) -> None:
        """A sub-step is finished: it and what it learned are kept, the lease goes on. `grant`: used up by it."""
        with transaction.atomic(), connection.cursor() as cursor:
            self._advance(cursor, advancing(type(self), lease, entering=False), build=build)
            self._keep(cursor, list(steps))
            if grant is not None:
                Grant.objects.filter(pk=grant.pk).update(consumed_at=now())
            crash.point("checkpoint-open")
        crash.point("checkpointed")

    def checkpoint(
        self, steps: Sequence[NewStep], ended: NewAttempt, upcoming: str | None, number: int, lease: float, build: str
    ) -> None:
        """A top-level step is finished: its row, its attempt, the next step as `at`, the lease, in one commit.

        `upcoming`: the next step's path and `number` its attempt, or None: the run is completed by this.
        """
        if upcoming is None:
            self._checkpoint_last(steps, ended, build)
            return
        with transaction.atomic(), connection.cursor() as cursor:
            entering = advancing(type(self), lease, entering=True)
            self._advance(cursor, entering, build=build, at_path=upcoming, at_number=number)
            self._keep(cursor, list(steps))
            inserting(Attempt, timed="ended_at").execute(cursor, ended)
            crash.point("checkpoint-open")
            if crash.ARMED:
                transaction.on_commit(lambda: crash.point("checkpointed"))

    def _checkpoint_last(self, steps: Sequence[NewStep], ended: NewAttempt, build: str) -> None:
        """The run is completed by this."""
        with transaction.atomic():
            self.change_held(
                status=Status.COMPLETED, ended_at=now(), reason="", at_path="", at_number=0, failures=0, build=build,
                **NO_CLAIM, **MOVED,
            )  # fmt: skip
            self.keep(steps)
            self.book(ended)
            self.close_waits()
            self.record("completed")
            crash.point("checkpoint-open")
            transaction.on_commit(lambda: crash.point("ended"))

    def _advance(self, cursor: Any, statement: Update, **values: Any) -> None:
        """As change_held, by a statement that was compiled before."""
        if not statement.execute(cursor, id=self.pk, fence=self.fence, holder=self.holder, **values):
            raise LeaseLost(f"the claim {self.fence} of run {self.pk} is over")

    def complete(self, build: str) -> None:
        """Every step of the plan is finished already (the code lost its last ones): the run is completed."""
        with transaction.atomic():
            self.change_held(
                status=Status.COMPLETED, ended_at=now(), reason="", at_path="", at_number=0, build=build, **NO_CLAIM
            )
            self.close_waits()
            self.record("completed")

    def park(
        self,
        waits: Sequence[Wait],
        ended: NewAttempt | None,
        steps: Sequence[NewStep] = (),
        *,
        failed: bool = False,
        reason: str = "",
    ) -> None:
        """The run waits, holding no process and no lease. What is there already makes it a release: no wake is lost.

        `ended`: the attempt that came to this; without one the step at work counts as not entered. `failed`: it was a
        failure of the step, to be tried again when the wait is over. A cancel that was asked meanwhile ends the run.
        """
        moved = MOVED if steps else {"entries": F("entries") + int(not failed and may_circle(waits))}
        entered: dict[str, Any] = {} if ended else {"at_number": F("at_number") - 1}
        with transaction.atomic():
            self.change_held(
                status=Status.WAITING, reason=reason, failures=F("failures") + int(failed), **moved, **entered,
                **NO_CLAIM,
            )  # fmt: skip
            self.keep(steps)
            self.book(ended)
            for wait in waits:
                self._open(wait, reason)
            self._record_parked(waits, ended, reason)
            if not (self.obey_cancel() or self.obey_pause()):
                self.settle_waiting(reason)

    def _record_parked(self, waits: Sequence[Wait], ended: NewAttempt | None, reason: str) -> None:
        if ended is not None and ended.outcome == "failed":
            self.record("retrying", path=ended.path, error=str(ended.error)[:300], number=ended.number)
        elif ended is not None and ended.outcome == "interrupted":
            self.record("interrupted", path=ended.path, cause=ended.cause, worker=ended.worker)
        elif waits and waits[0].kind in {"operator", "approval", "effect", "budget", "price", "code", "provider"}:
            self.record("waiting", path=waits[0].path, wait=waits[0].kind, reason=reason)

    def _open(self, wait: Wait, reason: str) -> None:
        seconds = getattr(wait, "seconds", None)
        here = Wait.objects.filter(run_id=self.pk, path=wait.path, closed_at=None)
        # Of an earlier entry, when something else woke the run: it waits for something else, or for more, by now.
        other = ~Q(kind=wait.kind) | ~Q(payload_sha256=wait.payload_sha256) | Q(kind__in=("retry", "budget", "price"))
        here.filter(other).update(closed_at=now())
        opened, is_new = Wait.objects.get_or_create(
            run_id=self.pk,
            path=wait.path,
            closed_at=None,
            defaults={
                "kind": wait.kind,
                "payload": wait.payload,
                "payload_sha256": wait.payload_sha256,
                "opened_at": now(),
                "until": wait.until if seconds is None else in_seconds(seconds),
            },
        )
        if is_new and wait.kind in FOR_PEOPLE:
            self.tell(NEEDS_YOU, f"{opened.pk}", path=wait.path, reason=reason, wait=wait.kind)

    def settle_waiting(self, reason: str) -> None:
        """Names what the run waits for and when the clock wakes it; wakes it at once if nothing is left to wait for."""
        waits = list(Wait.objects.filter(run_id=self.pk, closed_at=None))
        ripe = self.is_ripe(waits)
        if ripe and len(waits) < 2:
            self.wake()
            return
        kind = min((wait.kind for wait in waits), key=KINDS.index)
        due: Any = min((wait.until for wait in waits if wait.until is not None), default=None)
        if ripe:  # a fan-out, which would else be entered again for each answer
            due = in_seconds(FAN_OUT_SECONDS)
        self.rows().filter(pk=self.pk).update(waiting_for=kind, wake_at=due, reason=reason)

    def fail(self, ended: NewAttempt | None, reason: str, steps: Sequence[NewStep] = ()) -> None:
        """The step at work failed for good; a person may retry the run."""
        with transaction.atomic():
            self.change_held(status=Status.FAILED, reason=reason, ended_at=now(), **NO_CLAIM)
            self.keep(steps)
            self.book(ended)
            self.record("failed", path=ended.path if ended else "", error=reason[:300])

    def stop(self, ended: NewAttempt | None, steps: Sequence[NewStep] = ()) -> None:
        """A cancel that was asked for is obeyed by the worker."""
        with transaction.atomic():
            self.change_held(status=Status.CANCELLED, reason="cancelled", ended_at=now(), **NO_CLAIM)
            self.keep(steps)
            self.book(ended)
            self.close_waits()
            self.record_cancelled()

    def close_waits(self, by: Any = None) -> None:
        Wait.objects.filter(run_id=self.pk, closed_at=None).update(closed_at=now(), closed_by=by)


@cache
def advancing(model: Any, lease: float, *, entering: bool) -> Update:
    """The holder's run goes on: its lease is renewed, and with `entering` another step is at work."""

    def slot(name: str) -> Slot:
        return Slot(name, model._meta.get_field(name))

    held = model.objects.filter(id=slot("id"), fence=slot("fence"), holder=slot("holder"), status=Status.RUNNING)
    values = {"version": F("version") + 1, "lease_expires_at": in_seconds(lease), "build": slot("build"), **MOVED}
    if entering:
        values |= {"at_path": slot("at_path"), "at_number": slot("at_number"), "at_since": now(), "failures": 0}
    return Update(held, values)


@cache
def inserting(model: Any, timed: str = "") -> Insert:
    return Insert(model, (timed,) if timed else ())


def may_circle(waits: Sequence[Wait]) -> bool:
    """Whether coming back from these again and again would mean going round in circles.

    Not so for what others take up meanwhile (places, money, the provider), which may be asked for any number of times.
    """
    return any(
        wait.kind not in PATIENT and not (wait.kind == "model" and (wait.until or getattr(wait, "seconds", None)))
        for wait in waits
    )
