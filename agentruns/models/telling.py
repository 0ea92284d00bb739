"""tell: what people want to know about a run goes into the outbox, in the transaction that makes it so."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from django.conf import settings

from agentruns.errors import Refusal
from agentruns.models import outbox
from agentruns.models.moment import now
from agentruns.models.outbox import Outbox
from agentruns.models.trait import Trait

NEARLY_SPENT = Decimal("0.8")


class Telling(Trait):
    """Each event once for each address, however often a transaction or a worker comes by it again."""

    def tell(self, kind: str, occasion: str, *, path: str = "", reason: str = "", wait: str = "") -> None:
        """Part of the caller's transaction. `occasion` tells this event from the run's others of its kind."""
        targets = list(self._targets(kind))
        if not targets:
            return
        run: Any = self.rows().only("status", "spent", "unknown", "budget").get(pk=self.pk)
        about = {
            "status": run.status, "waiting_for": wait, "path": path, "reason": reason[:500],
            "spent_usd": f"{run.spent:.6f}", "unknown_usd": f"{run.unknown:.6f}", "budget_usd": f"{run.budget:.2f}",
        }  # fmt: skip
        rows = [
            Outbox(run_id=self.pk, kind=kind, occasion=occasion[:220], channel=channel, target=target, about=about,
                   created_at=now(), send_at=now())
            for channel, target in targets
        ]  # fmt: skip
        Outbox.objects.bulk_create(rows, ignore_conflicts=True)

    def tell_of_budget(self, spent: Decimal) -> None:
        """Once for each budget that the run had."""
        run: Any = self
        if spent >= run.budget * NEARLY_SPENT:
            self.tell(outbox.BUDGET, f"{run.budget:.4f}", reason=f"${spent:.4f} of ${run.budget:.2f} is spent.")

    def _targets(self, kind: str) -> Iterator[tuple[str, str]]:
        run: Any = self
        if outbox.MAIL in (run.notify if isinstance(run.notify, list) else ()) and run.owner_id and run.owner.email:
            yield outbox.MAIL, run.owner.email
        for hook in outbox.hooks_for(run.owner_id, kind):
            yield outbox.WEBHOOK, str(hook.pk)


def checked_notify(notify: Any, owner: Any) -> list[str]:
    """The ways by which the owner wants to be told, each of which must be possible."""
    wanted = sorted(set(notify or ()))
    if unknown := [way for way in wanted if way != outbox.MAIL]:
        raise Refusal(f"There is no notification by {str(unknown[0])[:40]!r}; there is: {outbox.MAIL}.")
    if wanted and not settings.EMAIL_URL:
        raise Refusal("No mail can be sent from here: set EMAIL_URL, or start the run without a mail.")
    if wanted and not (owner is not None and owner.email):
        raise Refusal("The run's owner has no mail address: give the account one, or start the run without a mail.")
    return wanted
