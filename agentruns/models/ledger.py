"""Calls under a run's budget: the intent is a decision (fenced); what the provider did is a fact (first come, once)."""

from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F, Max, Q, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone

from agentruns.encoding import NotStorable
from agentruns.models.body import Body
from agentruns.models.call import OPEN, SETTLED, Call
from agentruns.models.moment import in_seconds, now
from agentruns.models.provider import Day, Provider
from agentruns.models.status import Status
from agentruns.models.trait import Trait
from agentruns.models.wait import Wait

ZERO = Decimal(0)
FIRST_POLL_SECONDS = 2.0
PATIENCE_SECONDS = 5.0  # for calls of others to settle, which wake nobody but their own run


class NoRoom(Exception):
    """The intent was not written; the run waits for `kind`, `seconds` at most (None: until it is woken).

    `about`: what the wait is to remember, such as `need` (USD).
    """

    def __init__(self, kind: str, reason: str, seconds: float | None = None, **about: Any) -> None:
        self.kind, self.reason, self.seconds, self.about = kind, reason, seconds, about
        super().__init__(reason)


@dataclass(frozen=True, kw_only=True)
class Booking:
    """How a call ended, in the ledger's words. Tokens are counts, `cost` is USD, None: as much as was reserved.

    Without a `price` and its source the call keeps those that it was made at; without a `response_id` its own.
    """

    state: str
    response_id: str = ""
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
        today = timezone.now().date()
        with transaction.atomic():
            days = self._lock_days(today)
            self.change_living()
            self._check_provider(call)
            self._check_slots()
            self._check_budget(call)
            for day in days:
                self._check_day(call, day)
            call.run_id = self.pk
            call.number = 1 + (Call.objects.filter(run_id=self.pk, path=call.path).aggregate(n=Max("number"))["n"] or 0)
            call.state, call.created_at, call.reserved_on = "intent", now(), today
            call.request, call.request_body = Body.keep(call.request)
            call.save(force_insert=True)
            self.recount()
        return Call.objects.get(pk=call.pk)

    def _lock_days(self, today: date) -> list[Day]:
        """The budgets of `today` that bind this run: of all, and of its owner. Locked first by all intents, in one
        order, so that no two of them pass a limit that has room for one."""
        run: Any = self
        if settings.AGENT_DAILY_BUDGET_USD is not None or settings.AGENT_MAX_CALLS is not None:
            Day.objects.get_or_create(date=today, owner=None)
        mine = Day.objects.filter(Q(owner=None) | Q(owner=run.owner_id), date=today)
        return list(mine.select_for_update().order_by("pk"))

    def _check_provider(self, call: Call) -> None:
        stopped = Provider.objects.filter(base_url=call.provider, model="", stopped_at__isnull=False)
        if (row := stopped.first()) and not stopped.filter(probe_at__lte=now()).update(probe_at=in_seconds(60)):
            raise NoRoom("provider", row.reason, 60)

    def _check_slots(self) -> None:
        limit = settings.AGENT_MAX_CALLS
        if limit is not None and Call.objects.filter(state__in=OPEN).count() >= limit:
            raise NoRoom("slot", f"{limit} calls are in flight (AGENT_MAX_CALLS).")

    def _check_budget(self, call: Call) -> None:
        run: Any = self.rows().get(pk=self.pk)
        left = run.budget - run.spent - run.unknown
        if call.reserved > left:
            raise NoRoom(
                "budget",
                f"Step {call.path} may cost up to ${call.reserved:.4f}; ${max(left, ZERO):.4f} of the budget of "
                f"${run.budget:.2f} is left. Raise the budget to go on.",
                need=str(call.reserved),
            )
        if call.reserved > left - run.reserved:
            raise NoRoom("model", f"Step {call.path} waits for calls in flight to settle.", PATIENCE_SECONDS)

    def _check_day(self, call: Call, day: Day) -> None:
        limit = day.budget
        if limit is None and day.owner_id is None:
            limit = settings.AGENT_DAILY_BUDGET_USD
        if limit is None:
            return
        calls = Call.objects.filter(reserved_on=day.date)
        used = sums(calls if day.owner_id is None else calls.filter(run__owner=day.owner_id))
        left = limit - used["spent"] - used["unknown"]
        if call.reserved > left:
            raise NoRoom(
                "budget",
                f"Step {call.path} may cost up to ${call.reserved:.4f}; ${max(left, ZERO):.4f} of the day's budget of "
                f"${limit:.2f} is left. It goes on after midnight (UTC).",
                86_400 - (timezone.now().timestamp() % 86_400),
            )
        if call.reserved > left - used["reserved"]:
            raise NoRoom("model", f"Step {call.path} waits for the day's calls in flight to settle.", PATIENCE_SECONDS)

    def recount(self) -> None:
        """Rewrites the run's cached totals from its ledger rows; in each transaction that changes one."""
        totals = sums(Call.objects.filter(run_id=self.pk))
        self.rows().filter(pk=self.pk).update(version=F("version") + 1, **totals)
        run: Any = self
        run.tell_of_budget(totals["spent"] + totals["unknown"])


def sums(calls: Any) -> dict[str, Decimal]:
    """spent, unknown, reserved (USD) over ledger rows: disjoint, and all there is."""
    return calls.aggregate(
        spent=Coalesce(Sum("cost", filter=Q(state__in=SETTLED)), ZERO),
        unknown=Coalesce(Sum("reserved", filter=Q(state="unknown")), ZERO),
        reserved=Coalesce(Sum("reserved", filter=Q(state__in=OPEN)), ZERO),
    )


def submitted(call: Call, response_id: str) -> bool:
    """The provider gave the call an id, by which the clock asks for it: a fact, kept whoever holds the run.

    Also of a call that had been taken for unknown: it is open again, and in the totals so. False: it has an id.
    """
    given = {
        "state": "submitted", "response_id": response_id, "submitted_at": now(),
        "poll_at": in_seconds(FIRST_POLL_SECONDS),
    }  # fmt: skip
    mine = Call.objects.filter(pk=call.pk, response_id="")
    if mine.filter(state="intent").update(**given):
        return True
    with transaction.atomic():
        run: Any = call.run.lock()
        if not mine.filter(state="unknown").update(**given):
            return False
        run.recount()
    return True


def settle(call: Call, booking: Booking) -> bool:
    """Books how the call ended, once, and wakes the run if it waits for that. False: somebody was first."""
    booking = storable(booking)
    known: dict[str, Any] = {}
    if booking.price is not None:
        known["price"] = booking.price
    if booking.price_source:
        known["price_source"] = booking.price_source
    if booking.response_id:
        known["response_id"] = booking.response_id
    with transaction.atomic():
        run: Any = call.run.lock()
        answer, body = Body.keep(booking.answer)
        if not Call.objects.filter(pk=call.pk, state__in=(*OPEN, "unknown")).update(
            state=booking.state, cost=F("reserved") if booking.cost is None else booking.cost, **known,
            input_tokens=booking.input_tokens, cached_tokens=booking.cached_tokens,
            output_tokens=booking.output_tokens, reasoning_tokens=booking.reasoning_tokens, tier=booking.tier,
            answer=answer, answer_body=body, error=booking.error, code=booking.code, passing=booking.passing,
            retry_after=booking.retry_after, settled_at=now(), poll_at=None, partial="",
        ):  # fmt: skip
            return False
        _tell(run, call)
        if run.status == Status.CANCELLED:
            run.record("call_settled", path=call.path, number=call.number, state=booking.state, usd=str(_cost(call)))
    return True


def _cost(call: Call) -> Decimal:
    return Call.objects.values_list("cost", flat=True).get(pk=call.pk) or ZERO


def storable(booking: Booking) -> Booking:
    """The booking, or, for an answer that no row can keep, a failure that costs the same: it was paid, and one such
    answer must not keep the clock from booking the others."""
    try:
        Body.split(booking.answer)
    except NotStorable as error:
        return replace(booking, state="failed", answer={}, error=str(error), code="unstorable", passing=False)
    return booking


def lose(call: Call, reason: str, text: str = "") -> bool:
    """The call's answer never came: unknown, booked at its reservation until somebody learns more.

    `text`: what a stream had brought, if more is known than was kept.
    """
    kept = {"partial": text} if text else {}
    with transaction.atomic():
        run: Any = call.run.lock()
        if not Call.objects.filter(pk=call.pk, state="intent").update(
            state="unknown", error=reason, poll_at=None, **kept
        ):
            return False
        _tell(run, call)
        run.record("call_unknown", path=call.path, number=call.number, reason=reason[:300], usd=str(call.reserved))
    return True


def _tell(run: Any, call: Call) -> None:
    """New totals, and the run goes on if it waits: whatever it waited for at this path is another question by now."""
    run.recount()
    if run.status == Status.WAITING:
        waits = Wait.objects.filter(run=run, closed_at=None)
        waits.filter(Q(path=call.path) | Q(kind="model", until__isnull=False)).update(closed_at=now())
        run.wake_soon()
