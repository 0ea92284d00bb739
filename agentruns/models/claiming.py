"""Who may work on a run: one conditional update gives it to one worker, under a fence that only grows."""

import secrets
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self

from django.db import InterfaceError, OperationalError, connection, transaction
from django.db.models import Count, F, IntegerField, OuterRef, Q, Subquery
from django.db.models.functions import Coalesce

from agentruns.errors import LeaseLost
from agentruns.models.halt import Halt
from agentruns.models.moment import in_seconds, now
from agentruns.models.status import Status
from agentruns.models.step import Attempt, NewAttempt
from agentruns.models.trait import Trait

# A step that takes its worker with it so often in a row, with nothing new committed, is not tried again by itself.
LOSSES = 3
# Runs without an owner are those of one owner more, for fairness.
OWNER = Coalesce("owner_id", 0)


class Claiming(Trait):
    """claim, renew, release, rescue."""

    @classmethod
    def claim(cls, *, worker: str, lease: float, newer_builds: Iterable[str] = ()) -> Self | None:
        """The fairest due run, now held by the caller for `lease` seconds, or None.

        Priority first, then the owner with the fewest running, then the oldest. A run that one of `newer_builds`
        advanced is left to workers of that build.
        """
        mates = (
            cls.rows()
            .filter(status=Status.RUNNING)
            .annotate(group=OWNER)
            .filter(group=OuterRef("group"))
            .order_by()
            .values("group")
            .annotate(n=Count("*"))
            .values("n")
        )
        due = (
            cls.rows()
            .filter(~Halt.is_on(), status=Status.QUEUED, paused_at=None)
            .exclude(build__in=list(newer_builds))
            .annotate(group=OWNER)
            .annotate(mates=Coalesce(Subquery(mates, output_field=IntegerField()), 0))
            .order_by("-priority", "mates", "created_at")
            .values_list("pk", flat=True)
        )
        while candidates := list(due[:8]):  # each that is lost, another worker has won: it ends
            for pk in candidates:
                if run := cls._take(pk, worker, lease):
                    return run
        return None

    @classmethod
    def _take(cls, pk: Any, worker: str, lease: float) -> Self | None:
        holder = secrets.token_hex(16)
        taken = cls.rows().filter(~Halt.is_on(), pk=pk, status=Status.QUEUED, paused_at=None)
        try:
            taken.update(
                status=Status.RUNNING,
                fence=F("fence") + 1,
                holder=holder,
                worker=worker,
                lease_expires_at=in_seconds(lease),
                at_number=F("at_number") + 1,
                at_since=now(),
                started_at=Coalesce(F("started_at"), now()),
                version=F("version") + 1,
            )
        except (OperationalError, InterfaceError):
            connection.close()  # it may have been committed: asked below
        # By holder: None if somebody was first, which is an answer and no error, or if the lease is over already.
        return cls.rows().filter(pk=pk, holder=holder, status=Status.RUNNING).first()

    def renew(self, lease: float) -> str:
        """The heartbeat: `lease` seconds from now by the database's clock. Returns what people ordered meanwhile:
        "cancel", "pause", or nothing.

        Raises LeaseLost when the claim is over. It bumps no version: nothing that a page shows has changed.
        """
        held = self.held()
        if not held.update(lease_expires_at=in_seconds(lease)):
            raise LeaseLost(f"the claim {self.fence} of run {self.pk} is over")
        return self.ordered()

    if TYPE_CHECKING:

        def keep(self, steps: Iterable[Any]) -> None: ...

        def book(self, ended: NewAttempt | None) -> None: ...

        def obey_cancel(self) -> bool: ...

        def obey_pause(self) -> bool: ...

    def release(self, ended: NewAttempt | None = None, *, cause: str = "", steps: Iterable[Any] = ()) -> None:
        """Gives the run back, due at once. `ended`: the attempt that was cut off, if one was begun; without one the
        step at work counts as not entered. A cancel that was asked meanwhile ends the run. Raises LeaseLost."""
        entered: dict[str, Any] = {} if ended else {"at_number": F("at_number") - 1}
        rows = list(steps)
        moved = {"losses": 0, "entries": 0} if rows else {}
        with transaction.atomic():
            self.change_held(**self.queued(), **entered, **moved, at_since=None)
            self.keep(rows)
            self.book(ended)
            if ended is not None and ended.outcome == "interrupted":
                self.record("interrupted", path=ended.path, cause=cause, worker=ended.worker)
            if cause == "drain":
                self.record("released", cause=cause, worker=self.worker)
            if not (self.obey_cancel() or self.obey_pause()):
                self.ring_after_commit()

    def rescue(self, cause: str, *, dead_worker: str = "", drained: bool = False) -> bool:
        """Takes a run from a holder that is gone and makes it due again; False: it was not this claim's any more.

        Without `dead_worker` only an expired lease may be taken. Three losses in a row, with no drain begun and no new
        row, fail the run by the name of its step. A cancel that was asked ends it.
        """
        gone = Q(worker=dead_worker) if dead_worker else Q(lease_expires_at__lte=now())
        with transaction.atomic():
            run: Any = self.rows().select_for_update().filter(gone, pk=self.pk, fence=self.fence).first()
            if run is None or run.status != Status.RUNNING:
                return False
            losses = run.losses if drained else run.losses + 1
            gave_up = losses >= LOSSES and run.cancel_requested_at is None
            if gave_up:
                run._end_lost(cause, losses)
            else:
                run.change((Status.RUNNING,), **self.queued(), fence=F("fence") + 1, losses=losses, at_since=None)
            run._write_interrupted(cause)
            run.record("interrupted", path=run.at_path, cause=cause, worker=run.worker, losses=losses)
            if gave_up:
                run.record("failed", path=run.at_path, error=_lost(run, cause, losses))
            elif not (run.obey_cancel() or run.obey_pause()):
                run.fence += 1
                run.ring_after_commit(unrung="rescued")
        return True

    def _end_lost(self, cause: str, losses: int) -> None:
        self.change(
            (Status.RUNNING,), status=Status.FAILED, fence=F("fence") + 1, holder="", lease_expires_at=None,
            losses=losses, reason=_lost(self, cause, losses), ended_at=now(), at_since=None,
        )  # fmt: skip

    def _write_interrupted(self, cause: str) -> None:
        run: Any = self
        if run.at_since is None:
            return
        Attempt.objects.create(
            run_id=run.pk, path=run.at_path, number=run.at_number, worker=run.worker, build=run.build,
            started_at=run.at_since, ended_at=now(), outcome="interrupted", cause=cause,
        )  # fmt: skip


def _lost(run: Any, cause: str, losses: int) -> str:
    return f"worker lost {losses} times in step {run.at_path} ({cause})"
