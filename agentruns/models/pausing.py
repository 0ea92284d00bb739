"""A person pauses one run, and lets it go on. It waits for him, whatever else it waits for; nothing is lost by it."""

from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.db.models import F

from agentruns.errors import WrongState
from agentruns.models.moment import now
from agentruns.models.status import LIVING, Status
from agentruns.models.trait import Trait
from agentruns.models.wait import Wait

# The wait of a paused run stands at the run itself, not at a step.
PAUSED_PATH = ""
REASON = "Paused. Resume it to go on."


class Pausing(Trait):
    """pause, resume."""

    if TYPE_CHECKING:

        def settle_waiting(self, reason: str) -> None: ...

    def pause(self, by: Any = None) -> bool:
        """A queued or waiting run waits for a person at once; a running one stops at its next boundary.

        True: it stands by this. Pausing twice changes nothing. Raises WrongState for a run that has ended.
        """
        with transaction.atomic():
            run: Any = self.lock()
            if run.status not in LIVING:
                raise WrongState(f"Run {run.short_id} has ended ({run.status}); there is nothing to pause.")
            if run.paused_at is None:
                run.change(LIVING, paused_at=now())
                run.record("paused", by=by, path=run.at_path)
            return bool(run.obey_pause())

    def obey_pause(self) -> bool:
        """Lets a paused run that is being given back wait; part of the transaction that gives it back."""
        idle = self.rows().filter(pk=self.pk, status__in=(Status.QUEUED, Status.WAITING), paused_at__isnull=False)
        # Without a time to wake: what its other waits wait for is looked at when it is resumed.
        if not idle.update(status=Status.WAITING, waiting_for="operator", wake_at=None, reason=REASON):
            return False
        about = {"kind": "operator", "opened_at": now(), "payload": {"reason": REASON}}
        Wait.objects.get_or_create(run_id=self.pk, path=PAUSED_PATH, closed_at=None, defaults=about)
        return True

    def resume(self, by: Any = None) -> None:
        """The run goes on, or goes on waiting for what else it waits for. Raises WrongState when it is not paused."""
        with transaction.atomic():
            run: Any = self.lock()
            if run.paused_at is None or run.status not in LIVING:
                raise WrongState(f"Run {run.short_id} is not paused ({run.status}).")
            self.rows().filter(pk=self.pk).update(paused_at=None, version=F("version") + 1)
            Wait.objects.filter(run=run, path=PAUSED_PATH, closed_at=None).update(closed_at=now(), closed_by=by)
            run.record("unpaused", by=by, path=run.at_path)
            if run.status == Status.WAITING:
                run.settle_waiting(reason_of_waits(run))


def reason_of_waits(run: Any) -> str:
    """What the waits that are still open say."""
    for wait in Wait.objects.filter(run=run, closed_at=None).order_by("pk"):
        if isinstance(wait.payload, dict) and wait.payload.get("reason"):
            return str(wait.payload["reason"])
    return ""
