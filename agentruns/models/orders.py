"""What people order: cancel, retry, another budget. Each says why when it does not apply."""

from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from agentruns import crash
from agentruns.errors import WrongState
from agentruns.models.moment import now
from agentruns.models.status import LIVING, Status
from agentruns.models.submission import budget_of
from agentruns.models.trait import Trait
from agentruns.models.wait import Wait

# What a run may wait for when a person's retry makes it go on now.
RETRIED = ("retry", "operator", "provider", "code")


class Orders(Trait):
    """cancel, retry, raise_budget."""

    def cancel(self, by: Any = None) -> bool:
        """Ends a queued or waiting run at once; tells a running one to stop. True: it has ended by this.

        Asking twice changes nothing. Raises WrongState for a run that has ended.
        """
        with transaction.atomic():
            run: Any = self.lock()
            if run.status not in LIVING:
                raise WrongState(f"Run {run.short_id} has already {_ended(run)}; there is nothing to cancel.")
            transaction.on_commit(lambda: crash.point("cancel-committed"))
            asked = {"cancel_requested_at": now(), "cancel_requested_by": by}
            if run.status == Status.RUNNING:
                if run.cancel_requested_at is None:
                    run.change((Status.RUNNING,), **asked)
                    run.record("cancel_asked", by=by, path=run.at_path, paid=str(run.spent + run.unknown))
                return False
            run.change(
                (Status.QUEUED, Status.WAITING), **asked, status=Status.CANCELLED, reason="cancelled", ended_at=now(),
                waiting_for="", wake_at=None, fence=F("fence") + 1,
            )  # fmt: skip
            run.close_waits(by)
            run.record_cancelled(by=by)
            return True

    def record_cancelled(self, by: Any = None, **about: Any) -> None:
        """The event says how long it took (seconds), what was paid after it was asked for, and what is in flight yet
        (USD). Part of the transaction that ends the run."""
        run: Any = self.rows().get(pk=self.pk)
        asked = run.events.filter(kind="cancel_asked").order_by("-pk").first()
        paid = run.spent + run.unknown
        before = Decimal(asked.about.get("paid") or paid) if asked and isinstance(asked.about, dict) else paid
        took = (timezone.now() - run.cancel_requested_at).total_seconds() if run.cancel_requested_at else 0.0
        run.record(
            "cancelled", by=by, path=run.at_path, seconds=round(max(took, 0.0), 1), paid_after=str(paid - before),
            in_flight=str(run.reserved), **about,
        )  # fmt: skip

    def obey_cancel(self) -> bool:
        """Ends a run that is being given back although a cancel was asked; part of the transaction that gives it back.

        Without it the run would wait, or queue, with nobody left who was told to stop.
        """
        idle = self.rows().filter(pk=self.pk, status__in=(Status.QUEUED, Status.WAITING))
        if not idle.filter(cancel_requested_at__isnull=False).update(
            status=Status.CANCELLED, reason="cancelled", ended_at=now(), waiting_for="", wake_at=None
        ):
            return False
        run: Any = self
        run.close_waits()
        run.record_cancelled()
        return True

    def end_by_force(self) -> bool:
        """The clock's: a running run whose worker did not obey a cancel in time is ended under a new fence."""
        with transaction.atomic():
            run: Any = self.lock()
            if run.status != Status.RUNNING or run.cancel_requested_at is None or run.fence != self.fence:
                return False
            run.change(
                (Status.RUNNING,), status=Status.CANCELLED, reason="cancelled by force", ended_at=now(),
                fence=F("fence") + 1, holder="", lease_expires_at=None, at_since=None,
            )  # fmt: skip
            run._write_interrupted("cancel")
            run.close_waits()
            run.record_cancelled(forced=True, worker=run.worker)
            return True

    def retry(self, by: Any = None) -> None:
        """A failed run goes on from its finished steps, with the step's full number of retries, and its time, again.

        A run that waits for its next try is woken now. Raises WrongState otherwise.
        """
        with transaction.atomic():
            run: Any = self.lock()
            if run.status != Status.FAILED and not (run.status == Status.WAITING and run.waiting_for in RETRIED):
                raise WrongState(f"Run {run.short_id} {_why_no_retry(run)}")
            # Others stay open: a sleep of another item is not over, a question not answered, by this.
            Wait.objects.filter(run=run, closed_at=None, kind__in=RETRIED).update(closed_at=now(), closed_by=by)
            run.change(
                (Status.FAILED, Status.WAITING), **self.queued(), failures=0, losses=0, entries=0, ended_at=None,
                round=F("round") + 1, cancel_requested_at=None, cancel_requested_by=None, paused_at=None,
                deadline_at=_renewed_deadline(run),
            )  # fmt: skip
            run.record("retried", by=by, path=run.at_path)
            run.ring_after_commit()

    def change_budget(self, amount: Any, by: Any = None) -> None:
        """Sets the budget (USD) of a run that has not ended for good, and wakes it if it waited for that."""
        budget = budget_of(amount)
        with transaction.atomic():
            run: Any = self.lock()
            if run.is_final:
                raise WrongState(f"Run {run.short_id} has already {_ended(run)}; its budget changes nothing.")
            run.change((*LIVING, Status.FAILED), budget=budget)
            run.record("budget", by=by, before=str(run.budget), after=str(budget))
            Wait.objects.filter(run=run, kind="budget", closed_at=None).update(closed_at=now(), closed_by=by)
            if run.status == Status.WAITING and run.waiting_for == "budget":
                run.wake()


def _renewed_deadline(run: Any) -> datetime | None:
    """A run whose time limit is over gets as many minutes again; it would else fail at its first boundary."""
    if run.deadline_at is None or run.deadline_at > timezone.now():
        return run.deadline_at
    return timezone.now() + (run.deadline_at - run.created_at)


def _ended(run: Any) -> str:
    return {"completed": "completed", "failed": "failed", "cancelled": "been cancelled"}[run.status]


def _why_no_retry(run: Any) -> str:
    if run.status in {Status.COMPLETED, Status.CANCELLED}:
        return f"has {_ended(run)}; that is final. Fork it, or start a new run."
    return f"is {run.status}; only a failed run can be retried."
