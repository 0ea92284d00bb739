"""Calls under a run's budget: the intent is a decision (fenced); what the provider did is a fact (first come, once)."""

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F, Max, Q, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone

from agentruns.errors import CancelAsked, LeaseLost
from agentruns.models.body import Body
from agentruns.models.call import OPEN, SETTLED, Call
from agentruns.models.moment import in_seconds, now
from agentruns.models.provider import Day, Provider
from agentruns.models.status import Status
from agentruns.models.trait import Trait
from agentruns.models.wait import Wait

ZERO = Decimal(0)
FIRST_POLL_SECONDS = 2.0


class NoRoom(Exception):
    """The intent was not written; the run waits for `kind`, `seconds` at most (None: until it is woken)."""

    def __init__(self, kind: str, reason: str, seconds: float | None = None) -> None:
        self.kind, self.reason, self.seconds = kind, reason, seconds
        super().__init__(reason)


@dataclass(frozen=True, kw_only=True)
class Booking:
    """How a call ended, in the ledger's words. Tokens are counts, `cost` is USD, None: as much as was reserved."""

    state: str
    cost: Decimal | None = ZERO
    price: dict[str, str] | None = None
    price_source: str = ""
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    tier: str = ""
    answer: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    code: str = ""
    passing: bool = False
    retry_after: float | None = None


class Ledger(Trait):
    """intend, submitted, settle, recount."""

    def intend(self, call: Call) -> Call:
        """Writes the intent of `call` and reserves its worst price, before anything is sent.

        Raises NoRoom when budget, day, slots or a stopped provider do not let it begin now; CancelAsked; LeaseLost.
        """
        with transaction.atomic():
            day = self._lock_day()
            self._change_living()
            self._check_provider(call)
            self._check_slots()
            self._check_budget(call)
            if day is not None:
                self._check_day(call, day)
            call.run_id = self.pk
            call.number = 1 + (Call.objects.filter(run_id=self.pk, path=call.path).aggregate(n=Max("number"))["n"] or 0)
            call.state, call.created_at, call.reserved_on = "intent", now(), timezone.now().date()
            call.request, call.request_body = Body.keep(call.request)
            call.save(force_insert=True)
            self.recount()
        return Call.objects.get(pk=call.pk)

    def _lock_day(self) -> Day | None:
        """Locked first by all, so that no two intents pass a limit that has room for one."""
        if settings.AGENT_DAILY_BUDGET_USD is None and settings.AGENT_MAX_CALLS is None:
            return None
        today = timezone.now().date()
        Day.objects.get_or_create(date=today, owner=None)
        return Day.objects.select_for_update().get(date=today, owner=None)

    def _change_living(self) -> None:
        """The fence, a lease that has not run out, and no cancel asked: the last moment to say no."""
        mine = self.rows().filter(pk=self.pk, fence=self.fence, holder=self.holder, status=Status.RUNNING)
        living = mine.filter(lease_expires_at__gt=now(), cancel_requested_at=None)
        if living.update(version=F("version") + 1, entries=0, losses=0):
            return
        if mine.filter(cancel_requested_at__isnull=False).exists():
            raise CancelAsked(f"a cancel of run {self.pk} was asked for")
        raise LeaseLost(f"the claim {self.fence} of run {self.pk} is over")

    def _check_provider(self, call: Call) -> None:
        stopped = Provider.objects.filter(base_url=call.provider, model="", stopped_at__isnull=False)
        if (row := stopped.first()) and not stopped.filter(probe_at__lte=now()).update(probe_at=in_seconds(60)):
            raise NoRoom("provider", row.reason, 60)

    def _check_slots(self) -> None:
        limit = settings.AGENT_MAX_CALLS
        if limit is not None and Call.objects.filter(state__in=OPEN).count() >= limit:
            raise NoRoom("slot", f"{limit} calls are in flight (AGENT_MAX_CALLS)", 2)

    def _check_budget(self, call: Call) -> None:
        run: Any = self.rows().get(pk=self.pk)
        left = run.budget - run.spent - run.unknown
        if call.reserved > left:
            raise NoRoom(
                "budget",
                f"Step {call.path} may cost up to ${call.reserved:.4f}; ${max(left, ZERO):.4f} of the budget of "
                f"${run.budget:.2f} is left. Raise the budget to go on.",
            )
        if call.reserved > left - run.reserved:
            raise NoRoom("model", f"Step {call.path} waits for calls in flight to settle.", 5)

    def _check_day(self, call: Call, day: Day) -> None:
        limit = day.budget if day.budget is not None else settings.AGENT_DAILY_BUDGET_USD
        if limit is None:
            return
        used = sums(Call.objects.filter(reserved_on=day.date))
        if call.reserved > limit - used["spent"] - used["unknown"] - used["reserved"]:
            tomorrow = 86_400 - (timezone.now().timestamp() % 86_400)
            raise NoRoom("budget", f"The day's budget of ${limit:.2f} has no room for step {call.path}.", tomorrow)

    def recount(self) -> None:
        """Rewrites the run's cached totals from its ledger rows; in each transaction that changes one."""
        totals = sums(Call.objects.filter(run_id=self.pk))
        self.rows().filter(pk=self.pk).update(version=F("version") + 1, **totals)


def sums(calls: Any) -> dict[str, Decimal]:
    """spent, unknown, reserved (USD) over ledger rows: disjoint, and all there is."""
    return calls.aggregate(
        spent=Coalesce(Sum("cost", filter=Q(state__in=SETTLED)), ZERO),
        unknown=Coalesce(Sum("reserved", filter=Q(state="unknown")), ZERO),
        reserved=Coalesce(Sum("reserved", filter=Q(state__in=OPEN)), ZERO),
    )


def submitted(call: Call, response_id: str, *, poll: bool) -> bool:
    """The provider gave the call an id: a fact, kept whoever holds the run. `poll`: the clock is to ask for it."""
    return bool(
        Call.objects.filter(pk=call.pk, state__in=("intent", "unknown"), response_id="").update(
            state="submitted",
            response_id=response_id,
            submitted_at=now(),
            poll_at=in_seconds(FIRST_POLL_SECONDS) if poll else None,
        )
    )


def settle(call: Call, booking: Booking) -> bool:
    """Books how the call ended, once, and wakes the run if it waits for that. False: somebody was first."""
    with transaction.atomic():
        run: Any = call.run.lock()
        answer, body = Body.keep(booking.answer)
        if not Call.objects.filter(pk=call.pk, state__in=(*OPEN, "unknown")).update(
            state=booking.state, cost=call.reserved if booking.cost is None else booking.cost, price=booking.price,
            price_source=booking.price_source, input_tokens=booking.input_tokens, cached_tokens=booking.cached_tokens,
            output_tokens=booking.output_tokens, reasoning_tokens=booking.reasoning_tokens, tier=booking.tier,
            answer=answer, answer_body=body, error=booking.error, code=booking.code, passing=booking.passing,
            retry_after=booking.retry_after, settled_at=now(), poll_at=None, partial="",
        ):  # fmt: skip
            return False
        _tell(run, call)
    return True


def lose(call: Call, reason: str, text: str = "") -> bool:
    """The call's answer never came: unknown, booked at its reservation until somebody learns more."""
    with transaction.atomic():
        run: Any = call.run.lock()
        if not Call.objects.filter(pk=call.pk, state="intent").update(
            state="unknown", error=reason, partial=text, poll_at=None
        ):
            return False
        _tell(run, call)
        run.record("call_unknown", path=call.path, number=call.number, reason=reason[:300], usd=str(call.reserved))
    return True


def _tell(run: Any, call: Call) -> None:
    run.recount()
    if run.status == Status.WAITING:
        Wait.objects.filter(run=run, path=call.path, kind="model", closed_at=None).update(closed_at=now())
        Wait.objects.filter(run=run, kind="model", until__isnull=False, closed_at=None).update(closed_at=now())
        run.wake()
