"""Money: what may begin, what is counted, and that our sums are the provider's bill."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone

from agentruns import ModelError, pricing, step
from agentruns.errors import Refusal, UnknownPrice
from agentruns.models import Call, Day, Run, Wait
from agentruns.models.ledger import Booking, lose, settle, submitted
from agentruns.models.moment import in_seconds
from agentruns.models.receipt import receipt
from tests.engine.hands import at_once, call_in_flight, call_of
from tests.engine.money import (
    ASK,
    bill,
    calls,
    check_bill,
    check_books,
    generations,
    posts,
    tick_until,
    wait_until,
)


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch):
    monkeypatch.setattr("agentruns.outcome.FIRST_PAUSE_SECONDS", 0.01)


def asks(*names, **options):
    """A step `work` that asks under these names, one after the other."""

    @step
    def work(ctx):
        return [ctx.ask(f"What is a {name}?", name=name, **options) for name in names]

    return work


# --- a run's budget -----------------------------------------------------------------------------------------------


def test_a_call_that_the_budget_has_no_room_for_waits_with_step_need_and_rest_and_a_raise_wakes_it(
    declare, start, shop, provider
):
    declare(asks("ask", max_output_tokens=1000))
    run = start(budget="0.001")
    shop.until(run, "waiting", waiting_for="budget")
    assert "work/ask" in run.reason
    assert "$0.001" in run.reason or "$0.0010" in run.reason
    need = Decimal(Wait.objects.get(run=run, kind="budget").payload["need"])
    assert f"${need:.4f}" in run.reason
    assert need > Decimal("0.004")
    assert not posts(provider, run)
    run.change_budget("0.002")
    shop.until(run, "waiting", waiting_for="budget")
    assert not posts(provider, run)
    run.change_budget("1")
    shop.until(run)
    assert run.status == "completed"
    assert calls(run)[0].reserved == need
    check_bill(provider, run)


def test_a_raise_that_came_while_the_worker_was_about_to_park_is_not_missed(declare, start, shop, monkeypatch):
    declare(asks("ask"))
    run = start(budget="0.001")
    park = Run.park

    def late(self, *args, **options):
        if Run.objects.get(pk=run.pk).budget < 1:
            Run.objects.get(pk=run.pk).change_budget("1")
        return park(self, *args, **options)

    monkeypatch.setattr(Run, "park", late)
    shop.turn()
    run.refresh_from_db()
    assert run.status != "waiting"
    shop.until(run)
    assert run.status == "completed"


def test_a_call_costs_at_most_what_was_reserved_for_it(declare, start, shop, provider):
    declare(asks("one", "two", "three", max_output_tokens=2000))
    run = shop.until(start())
    rows = list(Call.objects.filter(run=run))
    assert len(rows) == 3
    assert all(0 < call.cost <= call.reserved for call in rows)
    check_bill(provider, run)


def test_what_does_not_fit_beside_open_reservations_waits_for_them_and_not_for_a_person(declare, start, shop):
    declare(asks("ask", max_output_tokens=1000))
    run = start(budget="0.01")
    held = shop.claim()
    other = call_in_flight(held, "work/other")
    Call.objects.filter(pk=other.pk).update(reserved=Decimal("0.0095"), poll_at=in_seconds(600))
    held.recount()
    held.release(cause="drain")
    shop.until(run, "waiting", waiting_for="model")
    assert "in flight" in run.reason
    for _ in range(25):  # more looks than a function may be entered in vain: it does not run in circles meanwhile
        shop.tick()
        shop.turn()
    run.refresh_from_db()
    assert (run.status, run.waiting_for) == ("waiting", "model")
    assert run.attempts.count() < 10
    assert settle(other, Booking(state="completed", cost=Decimal("0.0001")))
    run.refresh_from_db()
    assert run.status == "queued"
    assert not run.waits.filter(closed_at=None).exists()
    shop.until(run)
    assert run.status == "completed"


def test_no_budget_is_passed_however_many_intend_at_once(declare, start, shop, provider):
    declare(asks("ask"))
    run = start(budget="0.045")
    held = shop.claim()

    def intend(number):
        try:
            return bool(Run.objects.get(pk=run.pk).intend(call_of(held, f"work/part-{number}")))
        except Exception as error:
            return type(error).__name__

    found = at_once(8, intend)
    assert found.count(True) == 4
    assert found.count("NoRoom") == 4
    check_books(run)
    assert run.reserved == Decimal("0.04")


# --- days ---------------------------------------------------------------------------------------------------------


def test_a_days_budget_is_waited_for_until_midnight(declare, start, shop, provider, settings):
    settings.AGENT_DAILY_BUDGET_USD = Decimal("0.005")
    declare(asks("ask", max_output_tokens=1000))
    first = shop.until(start())
    assert first.status == "completed"
    second = start("another task")
    shop.until(second, "waiting", waiting_for="budget")
    assert "day" in second.reason
    midnight = (timezone.now() + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    assert abs((second.wake_at - midnight).total_seconds()) < 5
    assert not posts(provider, second)


def test_the_days_calls_in_flight_are_waited_for_and_not_midnight(declare, start, shop, settings):
    settings.AGENT_DAILY_BUDGET_USD = Decimal("0.02")
    declare(asks("ask", max_output_tokens=1000))
    start("the other")
    other = shop.claim()
    call = call_in_flight(other, "work/ask")
    Call.objects.filter(pk=call.pk).update(reserved=Decimal("0.018"), poll_at=in_seconds(600))
    run = start()
    shop.until(run, "waiting", waiting_for="model")
    assert settle(call, Booking(state="completed", cost=Decimal("0.0001")))
    Wait.objects.filter(run=run).update(until=in_seconds(-1))
    Run.objects.filter(pk=run.pk).update(wake_at=in_seconds(-1))
    shop.until(run)
    assert run.status == "completed"


def test_a_day_row_binds_without_the_setting_and_an_owners_binds_only_his(declare, start, shop, settings):
    assert settings.AGENT_DAILY_BUDGET_USD is None
    declare(asks("ask", max_output_tokens=1000))
    today = timezone.now().date()
    ann = get_user_model().objects.create_user("ann")
    row = Day.objects.create(date=today, owner=ann, budget=Decimal("0.001"))
    free = shop.until(start("nobody's"))
    assert free.status == "completed"
    hers = start(owner=ann)
    shop.until(hers, "waiting", waiting_for="budget")
    need = calls(free)[0].reserved
    Day.objects.filter(pk=row.pk).update(
        budget=need + Decimal("0.0001")
    )  # room for hers, not for the other's beside it
    hers.wake()
    shop.until(hers)
    assert hers.status == "completed"
    Day.objects.create(date=today, budget=Decimal("0.001"))
    shop.until(start("one more"), "waiting", waiting_for="budget")


# --- slots --------------------------------------------------------------------------------------------------------


def test_only_so_many_calls_are_in_flight_over_all_runs_and_the_next_goes_when_one_has_settled(
    declare, start, shop, provider, settings, parked
):
    settings.AGENT_MAX_CALLS = 1
    provider.fault("slow 60 times=1", match="lamp")

    @step
    def work(ctx):
        return ctx.ask(ctx.task)

    declare(work)
    first = start("What is a lamp?")
    shop.until(first, "waiting", waiting_for="model")
    others = [start("two"), start("three")]
    for run in others:
        shop.until(run, "waiting", waiting_for="slot")
    for _ in range(5):
        shop.tick()
        shop.turn()
    assert [run.attempts.count() for run in others] == [1, 1], "they are not entered to wait for the same again"
    first.cancel()
    for run in others:
        shop.until(run)
        assert run.status == "completed"
        check_bill(provider, run)
    two, three = (calls(run)[0] for run in others)
    assert two.settled_at < three.created_at, "one place, one call"
    assert [run.attempts.count() for run in others] == [3, 3], "each was woken once for its place, once for its answer"


# --- sums ---------------------------------------------------------------------------------------------------------


def test_after_failures_losses_and_retries_what_we_booked_is_the_bill(declare, start, shop, provider):
    entered = []

    @step
    def work(ctx):
        entered.append(1)
        ctx.ask("What is a buoy? [demo: fail server_error times=1]", name="one")
        ctx.ask("What is a lamp? [demo: 429 retry-after=0.1 times=1]", name="two")
        if len(entered) < 3:
            raise RuntimeError("again")
        try:
            ctx.ask("What is a rock? [demo: fail invalid_prompt]", name="three")
        except ModelError:
            return ctx.ask("What is a fog horn?", name="four")

    declare(work)
    run = start()
    shop.until(run, "waiting", waiting_for="retry")
    Call.objects.filter(run=run).update(settled_at=in_seconds(-60))
    Run.objects.filter(pk=run.pk).update(wake_at=in_seconds(-1))
    shop.until(run)
    assert run.status == "completed"
    assert len(generations(provider, run)) == 5
    check_bill(provider, run)


def test_a_cancelled_runs_call_in_flight_is_cancelled_at_the_provider_and_its_tokens_booked(
    declare, start, shop, provider, parked
):
    declare(asks("ask"))
    provider.fault("slow 20", match="ask")
    run = start()
    shop.until(run, "waiting", waiting_for="model")
    wait_until(lambda: generations(provider, run)[0]["output_tokens"] > 0)
    run.cancel()
    tick_until(shop, run, "cancelled")
    (line,) = generations(provider, run)
    assert line["status"] == "cancelled"
    assert 0 < calls(run)[0].output_tokens == line["output_tokens"]
    check_bill(provider, run)


def test_a_cancel_that_the_provider_did_not_hear_is_repeated(declare, start, shop, provider, parked):
    declare(asks("ask"))
    provider.fault("slow 20", match="ask")
    run = start()
    shop.until(run, "waiting", waiting_for="model")
    provider.fault("503 times=2", on="cancel")
    run.cancel()
    tick_until(shop, run, "cancelled")
    check_bill(provider, run)


def test_usage_from_outside_is_booked_once_an_attempt_whatever_the_budget(declare, start, shop, provider):
    entered = []

    @step
    def work(ctx):
        entered.append(1)
        ctx.usage("search", "demo", input_tokens=1_000_000, output_tokens=500_000)
        if len(entered) == 1:
            raise RuntimeError("once more")
        return ctx.ask("What is a buoy?")

    declare(work)
    run = start(budget="1.00")
    shop.until(run, "waiting", waiting_for="budget")
    assert run.spent == 6  # twice 1 USD for the input and 2 USD for the output
    assert [call.attempt for call in calls(run, "work/search")] == [1, 2]
    check_books(run)
    assert receipt(run).lost == 0
    assert not posts(provider, run)


def test_usage_of_less_than_nothing_is_refused(declare, start, shop):
    @step
    def work(ctx):
        ctx.usage("search", "demo", input_tokens=-1)

    declare(work)
    run = shop.until(start())
    assert run.status == "failed"
    assert run.spent == 0


def test_usage_of_a_model_without_a_price_waits_for_the_price(declare, start, shop):
    @step
    def work(ctx):
        ctx.usage("search", "house-model", input_tokens=1)

    declare(work)
    shop.until(start(), "waiting", waiting_for="price")


# --- rows that were learned late ----------------------------------------------------------------------------------


def test_an_id_that_comes_late_opens_an_unknown_call_again_in_the_totals_too(declare, start, shop, provider):
    declare(asks("ask"))
    run = start()
    held = shop.claim()
    call = held.intend(call_of(held, ASK))
    assert lose(call, "no answer")
    check_books(run)
    assert run.unknown == call.reserved
    assert submitted(call, "resp_late")
    check_books(run)
    assert (run.unknown, run.reserved) == (0, call.reserved)
    assert not submitted(call, "resp_other"), "an id is never replaced"
    assert not lose(call, "again"), "it is not unknown any more"
    assert settle(call, Booking(state="completed", cost=Decimal("0.003")))
    assert not settle(call, Booking(state="failed"))
    check_books(run)
    assert run.spent == Decimal("0.003")


def test_an_answer_too_large_to_be_kept_is_a_failure_that_costs_the_same(declare, start, shop, provider):
    """It has fewer than 10 million bytes on the wire, and more when it is escaped."""
    declare(asks("ask"))
    run = start()
    held = shop.claim()
    call = call_in_flight(held, ASK)
    booking = Booking(state="completed", cost=Decimal("0.004"), output_tokens=7, answer={"text": "é" * 2_000_000})
    assert settle(call, booking)
    call.refresh_from_db()
    assert (call.state, call.code, call.output_tokens) == ("failed", "unstorable", 7)
    check_books(run)
    assert run.spent == Decimal("0.004")


def test_of_many_who_settle_a_call_at_once_one_does(declare, start, shop, provider):
    declare(asks("ask"))
    run = start()
    held = shop.claim()
    call = call_in_flight(held, ASK)
    booked = at_once(6, lambda n: settle(call, Booking(state="completed", cost=Decimal(n + 1) / 1000)))
    assert booked.count(True) == 1
    check_books(run)
    assert run.spent == Decimal(booked.index(True) + 1) / 1000


def test_a_run_whose_model_has_no_price_is_refused_with_the_remedy(declare, provider):
    declare(asks("ask"))
    with pytest.raises(UnknownPrice, match="AGENT_PRICE"):
        Run.start("trial", "a task", model="house-model")
    assert not Run.objects.exists()
    assert issubclass(UnknownPrice, Refusal)


def test_the_worst_price_covers_a_request_of_any_script(declare, start, shop, provider):
    """Tokens are bounded by bytes: what is reserved for Chinese or emoji is never less than what is billed."""

    @step
    def work(ctx):
        return ctx.ask("燈塔是什麼？🗼" * 200, max_output_tokens=500)

    declare(work)
    run = shop.until(start())
    (call,) = calls(run)
    assert call.cost <= call.reserved
    assert bill(provider, run) == call.cost
    assert pricing.DEMO.input * call.input_tokens / 1_000_000 <= call.reserved


def test_a_budget_wait_of_an_earlier_prompt_does_not_wake_the_run_again_and_again(declare, start, shop):
    """The code was changed while the run waited: it needs more now than the wait had written down."""
    declare(asks("ask", max_output_tokens=1000))
    run = start(budget="0.001")
    shop.until(run, "waiting", waiting_for="budget")
    declare(asks("ask", max_output_tokens=100_000))
    Run.objects.filter(pk=run.pk).update(budget=Decimal("0.10"))  # room for what it needed before, not for this
    run.wake()
    for _ in range(5):
        shop.turn()
    run.refresh_from_db()
    assert (run.status, run.waiting_for) == ("waiting", "budget")
    assert run.attempts.count() == 2
