"""How a waiting run becomes due again. Whoever knows calls it; twice is once."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q

from agentruns import pricing
from agentruns.errors import UnknownPrice
from agentruns.models.call import OPEN, Call
from agentruns.models.granting import is_said
from agentruns.models.moment import in_seconds, now
from agentruns.models.provider import Price
from agentruns.models.status import Status
from agentruns.models.trait import Trait
from agentruns.models.wait import FAN_OUT_SECONDS, KINDS, Wait


class Waking(Trait):
    """wake, is_ripe; wake_due, wake_waiting, wake_for_slots, wake_priced."""

    def wake(self, *, unrung: str = "") -> bool:
        """A waiting run becomes due; False: it was not waiting, or is paused. Part of the transaction that ended the
        wait, so that a paused run finds it ended when it is resumed."""
        waiting = self.rows().filter(pk=self.pk, status=Status.WAITING, paused_at=None)
        if not waiting.update(version=F("version") + 1, **self.queued()):
            return False
        self._close_ripe()
        self.ring_after_commit(unrung=unrung)
        return True

    def wake_soon(self) -> None:
        """As wake; but a fan-out that waits for other answers, too, is woken at most once a second."""
        others = Wait.objects.filter(run_id=self.pk, closed_at=None, kind="model")
        if not others.exists():
            self.wake()
            return
        waiting = self.rows().filter(pk=self.pk, status=Status.WAITING, paused_at=None)
        later = waiting.filter(Q(wake_at=None) | Q(wake_at__gt=in_seconds(FAN_OUT_SECONDS)))
        later.update(wake_at=in_seconds(FAN_OUT_SECONDS))

    def _close_ripe(self) -> None:
        """Closes what is over, so that the next meeting of the same name opens a new wait with a time of its own."""
        waits = Wait.objects.filter(run_id=self.pk, closed_at=None)
        waits.filter(until__lte=now()).update(closed_at=now())
        open_call = Call.objects.filter(run=OuterRef("run"), path=OuterRef("path"), state__in=OPEN)
        waits.filter(~Exists(open_call), kind="model", until=None).update(closed_at=now())

    def is_ripe(self, waits: list[Wait]) -> bool:
        """Whether something that the run waits for is there by now, or nothing is open.

        A wait for a model is over when no call at its path is open; one with a time, when the time has come: such a
        one for a model waits for room beside other calls, and has none at its path.
        """
        if not waits:
            return True
        timed = [wait.pk for wait in waits if wait.until is not None]
        if timed and Wait.objects.filter(pk__in=timed, until__lte=now()).exists():
            return True
        if any(self._is_met(wait) for wait in waits):
            return True
        paths = {wait.path for wait in waits if wait.kind == "model" and wait.until is None}
        if not paths:
            return False
        open_calls = Call.objects.filter(run_id=self.pk, path__in=paths, state__in=OPEN)
        return paths - set(open_calls.values_list("path", flat=True)) != set()

    def _is_met(self, wait: Wait) -> bool:
        """A budget may have been raised, a price set, or a word said, between the worker's look and its park."""
        payload = wait.payload if isinstance(wait.payload, dict) else {}
        if wait.kind == "budget" and (need := payload.get("need")):
            run: Any = self.rows().get(pk=self.pk)
            return bool(run.budget - run.spent - run.unknown >= Decimal(need))
        if number := payload.get("unknown"):  # the provider told of that call meanwhile, and it was booked
            nameless = ("unknown", *OPEN)
            return wait.run.calls.filter(path=wait.path, number=number).exclude(state__in=nameless).exists()
        return (wait.kind == "price" and is_priced(wait)) or is_said(wait)

    @classmethod
    def wake_due(cls, limit: int = 200) -> int:
        """The clock's: wakes runs whose time has come, and waiting runs that nothing open could wake."""
        waiting = cls.rows().filter(status=Status.WAITING)
        due = list(waiting.filter(wake_at__lte=now()).order_by("wake_at")[:limit])
        others = Wait.objects.exclude(kind="model", until=None)
        nothing_open = waiting.filter(
            ~Exists(others.filter(run=OuterRef("pk"), closed_at=None)),
            ~Exists(Call.objects.filter(run=OuterRef("pk"), state__in=OPEN)),
        )
        return sum(cls._wake_one(run) for run in [*due, *nothing_open[:limit]])

    @classmethod
    def _wake_one(cls, run: Any) -> bool:
        """Unless it has moved since it was read: its next wait may have a time of its own."""
        with transaction.atomic():
            same = cls.rows().select_for_update().filter(pk=run.pk, version=run.version).first()
            return bool(same and same.wake())

    @classmethod
    def wake_waiting(
        cls, kind: str, where: Callable[[Wait], bool] = lambda _: True, limit: int | None = None, by: Any = None
    ) -> int:
        """Wakes runs that wait for `kind`, those that came first first, and closes these waits; returns how many."""
        woken = 0
        waits = Wait.objects.filter(kind=kind, closed_at=None, run__status=Status.WAITING).order_by("opened_at", "pk")
        for wait in waits.select_related("run"):
            if limit is not None and woken >= limit:
                break
            if not where(wait):
                continue
            with transaction.atomic():
                run: Any = wait.run.lock()
                if Wait.objects.filter(pk=wait.pk, closed_at=None).update(closed_at=now(), closed_by=by):
                    woken += run.wake()
        return woken

    @classmethod
    def wake_for_slots(cls) -> int:
        """The clock's: as many of those that wait for a slot as calls may begin; nobody holds a run to wait for one."""
        free = None
        if settings.AGENT_MAX_CALLS is not None:
            free = settings.AGENT_MAX_CALLS - Call.objects.filter(state__in=OPEN).count()
        return cls.wake_waiting("slot", limit=free)

    @classmethod
    def wake_priced(cls) -> int:
        """Wakes runs that wait for the price of a model that has one by now. When a price is set, and by the clock."""
        return cls.wake_waiting("price", is_priced)

    def blame_provider(self, path: str, reason: str) -> None:
        """The call at `path` cannot be asked for with the provider and key of now: a person has to act."""
        self._turn_wait(path, "model", "provider", reason)

    def excuse_provider(self, path: str) -> None:
        """It can be asked for again."""
        self._turn_wait(path, "provider", "model", "")

    def _turn_wait(self, path: str, before: str, after: str, reason: str) -> None:
        with transaction.atomic():
            run: Any = self.lock()
            waits = Wait.objects.filter(run_id=self.pk, closed_at=None)
            wait = waits.filter(path=path, kind=before, until=None)
            if run.status != Status.WAITING or not wait.update(kind=after, payload={"reason": reason}):
                return
            kind = min(waits.values_list("kind", flat=True), key=KINDS.index)
            run.change((Status.WAITING,), waiting_for=kind, reason=reason)
            if reason:
                run.record("waiting", path=path, wait=after, reason=reason)


def is_priced(wait: Wait) -> bool:
    model = wait.payload.get("model") if isinstance(wait.payload, dict) else None
    if not model:
        return False
    try:
        pricing.price_of(model, Price.override(model))
    except UnknownPrice:
        return False
    return True
