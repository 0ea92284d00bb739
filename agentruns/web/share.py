"""How much of a run's budget is used: the bar on the list and on the run's page."""

from decimal import Decimal
from typing import NamedTuple

from agentruns.models import Run

NEAR_PERCENT = 80


class Share(NamedTuple):
    """Percent of the budget spent (or booked as unknown) and reserved for calls in flight; a tone near the end."""

    spent: float
    reserved: float
    tone: str

    @classmethod
    def of(cls, run: Run) -> "Share":
        """From the run's cached totals, which every change of its ledger rewrites."""
        budget = run.budget or Decimal(1)
        spent = float((run.spent + run.unknown) / budget * 100)
        tone = "f-bad" if spent > 100 else "f-wait" if spent >= NEAR_PERCENT else "f-run"
        left = max(0.0, 100.0 - spent)
        return cls(min(spent, 100.0), min(float(run.reserved / budget * 100), left), tone)
