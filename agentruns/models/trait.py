"""What the files of Run's verbs share: the fields they touch, one conditional write, one lock, one ring."""

from typing import TYPE_CHECKING, Any, Self

from django.db import transaction
from django.db.models import F

from agentruns import crash, queues
from agentruns.errors import CancelAsked, LeaseLost, PauseAsked
from agentruns.models.halt import Halt
from agentruns.models.moment import now
from agentruns.models.status import Status

if TYPE_CHECKING:
    from django.db.models import Model as Base
else:
    Base = object


class Trait(Base):
    """Base of Run's mix-ins. A trait adds verbs, never fields."""

    if TYPE_CHECKING:
        pk: Any
        fence: Any
        holder: Any
        status: Any
        worker: Any

        def record(self, kind: str, *, path: str = "", by: Any = None, **about: Any) -> None: ...

    @classmethod
    def rows(cls) -> Any:
        return cls.objects  # type: ignore[attr-defined]

    def change(self, expected: tuple[str, ...], **values: Any) -> bool:
        """One conditional update on (id, expected status); False: somebody was first."""
        return bool(self.rows().filter(pk=self.pk, status__in=expected).update(version=F("version") + 1, **values))

    def change_held(self, **values: Any) -> None:
        """One conditional update by the holder of the claim; raises LeaseLost when it is no longer that."""
        if not self.held().update(version=F("version") + 1, **values):
            raise LeaseLost(f"the claim {self.fence} of run {self.pk} is over")

    def held(self) -> Any:
        """The row, while the claim that this object stands for is in force."""
        return self.rows().filter(pk=self.pk, fence=self.fence, holder=self.holder, status=Status.RUNNING)

    def is_held(self) -> bool:
        return bool(self.held().exists())

    def change_living(self) -> None:
        """The last moment to say no to something new outside: fence, a lease that has not run out, no cancel or pause.

        Part of the transaction that writes an intent. Raises CancelAsked, PauseAsked, LeaseLost.
        """
        free = self.held().filter(~Halt.is_on(), cancel_requested_at=None, paused_at=None)
        if free.filter(lease_expires_at__gt=now()).update(version=F("version") + 1, entries=0, losses=0):
            return
        match self.ordered():
            case "cancel":
                raise CancelAsked(f"a cancel of run {self.pk} was asked for")
            case "pause":
                raise PauseAsked(f"run {self.pk} is paused")
        raise LeaseLost(f"the claim {self.fence} of run {self.pk} is over")

    def ordered(self) -> str:
        """What people have ordered for the run that is held: "cancel", "pause", or nothing."""
        found = self.held().annotate(halted=Halt.is_on()).values_list("cancel_requested_at", "paused_at", "halted")
        cancel, pause, halted = found.first() or (None, None, False)
        return "cancel" if cancel else "pause" if pause or halted else ""

    def note(self, kind: str, *, path: str = "", **about: Any) -> None:
        """An event that no verb makes, with a version of its own, so that pages show it. It decides nothing."""
        with transaction.atomic():
            self.rows().filter(pk=self.pk).update(version=F("version") + 1)
            self.record(kind, path=path, **about)

    def lock(self) -> Self:
        """The run as it is now, locked until the transaction ends; locks go day, run, call, key, always."""
        return self.rows().select_for_update().get(pk=self.pk)

    def ring_after_commit(self, *, unrung: str = "", rung: str = "") -> None:
        """Rings when the transaction has committed; a lost ring is found by the clock's sweep.

        `unrung` and `rung` name the points before and after the ring at which a trial may end this process.
        """
        pk, fence = self.pk, self.fence

        def ring() -> None:
            crash.point(unrung)
            queues.ring(pk, fence)
            crash.point(rung)

        transaction.on_commit(ring, robust=True)

    @staticmethod
    def queued() -> dict[str, Any]:
        """What makes a run due: to be written by the transaction that then rings."""
        return {
            "status": Status.QUEUED,
            "waiting_for": "",
            "wake_at": None,
            "reason": "",
            "holder": "",
            "lease_expires_at": None,
            "enqueued_at": now(),
        }
