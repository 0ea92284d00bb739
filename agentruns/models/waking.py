"""How a waiting run becomes due again. Whoever knows calls it; twice is once."""

from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef

from agentruns.models.call import OPEN, Call
from agentruns.models.moment import now
from agentruns.models.status import Status
from agentruns.models.trait import Trait
from agentruns.models.wait import Wait


class Waking(Trait):
    """wake, is_ripe."""

    def wake(self) -> bool:
        """A waiting run becomes due; False: it was not waiting. Part of the transaction that ended the wait."""
        if not self.change((Status.WAITING,), **self.queued()):
            return False
        self._close_ripe()
        self.ring_after_commit()
        return True

    def _close_ripe(self) -> None:
        """Closes what is over, so that the next meeting of the same name opens a new wait with a time of its own."""
        waits = Wait.objects.filter(run_id=self.pk, closed_at=None)
        waits.filter(until__lte=now()).update(closed_at=now())
        open_call = Call.objects.filter(run=OuterRef("run"), path=OuterRef("path"), state__in=OPEN)
        waits.filter(~Exists(open_call), kind="model", until=None).update(closed_at=now())

    def is_ripe(self, waits: list[Wait]) -> bool:
        """Whether something that the run waits for is there by now, or nothing is open.

        A wait for a model is over when no call at its path is open; one with a time, when the time has come.
        """
        if not waits:
            return True
        timed = [wait.pk for wait in waits if wait.until is not None]
        if timed and Wait.objects.filter(pk__in=timed, until__lte=now()).exists():
            return True
        paths = {wait.path for wait in waits if wait.kind == "model"}
        if not paths:
            return False
        open_calls = Call.objects.filter(run_id=self.pk, path__in=paths, state__in=OPEN)
        return paths - set(open_calls.values_list("path", flat=True)) != set()

    @classmethod
    def wake_due(cls, limit: int = 200) -> int:
        """The clock's: wakes runs whose time has come, and waiting runs that nothing open could wake."""
        waiting = cls.rows().filter(status=Status.WAITING)
        due = list(waiting.filter(wake_at__lte=now()).order_by("wake_at")[:limit])
        nothing_open = waiting.filter(
            ~Exists(Wait.objects.filter(run=OuterRef("pk"), closed_at=None)),
            ~Exists(Call.objects.filter(run=OuterRef("pk"), state__in=OPEN)),
        )
        return sum(cls._wake_one(run) for run in [*due, *nothing_open[:limit]])

    @staticmethod
    def _wake_one(run: Any) -> bool:
        with transaction.atomic():
            return bool(run.wake())
