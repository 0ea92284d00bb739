"""Background calls: the probe that finds out, the park that loses no wake-up, and the clock that asks on."""

import pkgutil
import threading
import time

import pytest

from agentruns import asking, clock, polling, step
from agentruns.models import Call, Provider, Run
from agentruns.models.ledger import settle
from agentruns.models.moment import in_seconds
from agentruns.models.receipt import receipt
from tests.engine.money import bill, calls, check_bill, check_books, generations, posts, states, tick_until, wait_until


@pytest.fixture
def asks(declare):
    def asks(prompt="What is a buoy?", **options):
        @step(retries=0)
        def work(ctx):
            return ctx.ask(prompt, **options)

        declare(work)

    return asks


# --- the probe ----------------------------------------------------------------------------------------------------


def test_a_provider_without_background_mode_is_asked_without_and_remembered(asks, start, shop, another):
    provider = another(background="off")
    asks()
    run = shop.until(start())
    assert run.status == "completed"
    assert [post["answer"] for post in posts(provider, run)] == ["accepted"]
    first, second = calls(run)
    assert (first.code, first.cost, second.state, second.background) == ("no_background", 0, "completed", False)
    assert Provider.objects.get(model="demo").background is False
    check_bill(provider, run)
    again = shop.until(start("another"))
    assert states(again) == ["completed"]
    check_bill(provider, again)


def test_a_provider_that_ignores_the_flag_answers_in_the_post_which_counts_and_is_remembered(
    asks, start, shop, another
):
    provider = another(background="ignored")
    asks()
    run = shop.until(start())
    assert run.status == "completed"
    assert states(run) == ["completed"]
    assert len(posts(provider, run)) == 1
    assert Provider.objects.get(model="demo").background is False
    check_bill(provider, run)
    again = shop.until(start("another"))
    assert [call.background for call in calls(again)] == [False]
    check_bill(provider, again)


def test_what_the_probe_showed_is_believed_for_a_day(asks, start, shop, another):
    provider = another(background="off")
    asks()
    shop.until(start())
    Provider.objects.update(probed_at=in_seconds(-25 * 3600))
    again = shop.until(start("another"))
    assert [call.code for call in calls(again)] == ["no_background", ""]
    check_bill(provider, again)


def test_a_failure_in_the_post_teaches_nothing_about_background(asks, start, shop, another):
    another(background="ignored")
    asks("What is a buoy? [demo: fail invalid_prompt]")
    shop.until(start())
    assert not Provider.objects.exists()


def test_background_that_is_switched_on_at_a_provider_without_fails_and_does_not_ask_for_ever(
    asks, start, shop, another, settings
):
    settings.AGENT_BACKGROUND = "on"
    another(background="off")
    asks()
    run = shop.until(start())
    assert run.status == "failed"
    assert "background" in run.reason
    assert states(run) == ["failed"]
    assert run.spent == 0


def test_with_background_off_no_probe_is_made(asks, start, shop, provider, settings):
    settings.AGENT_BACKGROUND = "off"
    asks()
    run = shop.until(start())
    assert [call.background for call in calls(run)] == [False]
    assert not Provider.objects.exists()
    check_bill(provider, run)


# --- park and wake ------------------------------------------------------------------------------------------------


def test_a_run_that_waits_for_its_call_is_woken_by_the_clock_and_asks_no_second_time(
    asks, start, shop, provider, parked
):
    asks("What is a buoy? [demo: slow 0.5]")
    run = start()
    shop.turn()
    run.refresh_from_db()
    assert (run.status, run.waiting_for, run.holder) == ("waiting", "model", "")
    shop.until(run)
    assert run.status == "completed"
    assert len(posts(provider, run)) == 1
    assert not run.waits.filter(closed_at=None).exists()
    check_bill(provider, run)


@pytest.mark.parametrize("moment", ["agentruns.sending.Sending.send", "agentruns.models.Run.park"])
def test_a_call_that_settles_while_its_run_is_about_to_park_wakes_it(
    moment, asks, start, shop, provider, parked, monkeypatch
):
    """Between the id and the park the clock may be first: then the run is given back, not parked."""
    asks()
    run = start()
    original = pkgutil.resolve_name(moment)

    def clock_first(self, *args, **options):
        if moment.endswith("send"):
            original(self, *args, **options)
        Call.objects.filter(state="submitted").update(poll_at=in_seconds(-1))
        tick_until(shop, run, "completed")
        return None if moment.endswith("send") else original(self, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(moment, clock_first)
        shop.turn()
    run.refresh_from_db()
    assert run.status != "waiting"
    shop.until(run)
    assert run.status == "completed"
    assert len(posts(provider, run)) == 1
    check_bill(provider, run)


def test_a_call_that_is_settled_by_clock_and_worker_at_once_is_booked_once(asks, start, shop, provider, monkeypatch):
    asks()
    run = start()

    def twice(call, booking):
        assert settle(call, booking)
        assert not settle(call, booking)

    monkeypatch.setattr(asking, "settle", twice)
    shop.until(run)
    assert run.status == "completed"
    check_bill(provider, run)


def test_two_clocks_do_not_poll_the_same_call_twice(asks, start, shop, provider, parked, monkeypatch):
    asks("What is a buoy? [demo: slow 5]")
    run = start()
    shop.turn()
    Call.objects.filter(run=run).update(poll_at=in_seconds(-1))
    (call,) = polling.due_calls()
    provider_now = polling.llm.provider()
    assert [polling.taken(call, provider_now), polling.taken(call, provider_now)] == [True, False]


def test_a_call_that_was_polled_for_days_is_still_polled(asks, start, shop, provider, parked):
    asks()
    run = start()
    shop.turn()
    Call.objects.filter(run=run).update(polls=5_000, poll_at=in_seconds(-1))
    tick_until(shop, run, "completed")


def test_a_call_that_cannot_be_booked_does_not_keep_others_from_it(asks, start, shop, provider, parked, monkeypatch):
    asks()
    runs = [start("one"), start("two")]
    shop.turn()
    bad = Call.objects.get(run=runs[0]).pk

    def broken(call, reply):
        if call.pk == bad:
            raise RuntimeError("an answer like no other")
        return booking_of(call, reply)

    booking_of = polling.booking_of
    monkeypatch.setattr(polling, "booking_of", broken)
    Call.objects.update(poll_at=in_seconds(600))  # no clock comes between
    wait_until(lambda: all(generations(provider, run)[0]["status"] == "completed" for run in runs))
    Call.objects.filter(pk=bad).update(poll_at=in_seconds(-2))
    Call.objects.exclude(pk=bad).update(poll_at=in_seconds(-1))
    polling.poll_calls()
    assert [states(run) for run in runs] == [["submitted"], ["completed"]]


# --- answers that are gone, late or elsewhere ---------------------------------------------------------------------


def test_a_404_is_believed_the_second_time_and_is_then_paid_lost_and_asked_anew(asks, start, shop, provider, parked):
    asks("What is a buoy? [demo: gone times=1]")
    run = start()
    shop.turn()
    first = calls(run)[0]
    for code in ("gone", "gone"):
        Call.objects.filter(pk=first.pk, state="submitted").update(poll_at=in_seconds(-1))
        shop.tick()
        first.refresh_from_db()
        assert first.code == code
        if first.state == "submitted":
            assert (first.poll_at - first.submitted_at).total_seconds() > 20
    assert (first.state, first.cost) == ("expired", first.reserved)
    shop.until(run)
    assert run.status == "completed"
    assert [one.key.rpartition("ask")[2] for one in calls(run)] == ["", "~2"]
    assert receipt(run).lost == first.reserved
    check_books(run)
    assert run.spent >= bill(provider, run)


def test_a_404_that_was_a_hiccup_is_forgotten(asks, start, shop, provider, parked):
    asks("What is a buoy? [demo: slow 1]")
    run = start()
    shop.turn()
    provider.fault("404 times=1", on="retrieve")
    Call.objects.filter(run=run).update(poll_at=in_seconds(-1))
    shop.tick()
    assert calls(run)[0].code == "gone"
    Call.objects.filter(run=run).update(poll_at=in_seconds(-1))
    shop.tick()
    assert (calls(run)[0].code, states(run)) == ("", ["submitted"])
    shop.until(run)
    check_bill(provider, run)


def test_a_call_at_another_provider_waits_with_both_named_and_is_taken_when_it_is_back(
    asks, start, shop, provider, another, parked, settings
):
    asks("What is a buoy? [demo: slow 0.5]")
    run = start()
    shop.turn()
    second = another()
    Call.objects.filter(run=run).update(poll_at=in_seconds(-1))
    shop.tick()
    run.refresh_from_db()
    assert (run.status, run.waiting_for) == ("waiting", "provider")
    assert provider.base_url in run.reason
    assert second.base_url in run.reason
    assert run.events.filter(kind="waiting").count() == 1
    run.retry()  # a person's retry asks nothing twice either
    shop.turn()
    run.refresh_from_db()
    assert (run.status, run.waiting_for) == ("waiting", "provider")
    assert provider.base_url in run.reason
    assert second.base_url in run.reason
    assert not posts(second, run)
    settings.AGENT_DEMO_URL = provider.base_url
    Call.objects.filter(run=run).update(poll_at=in_seconds(-1))
    shop.until(run)
    assert run.status == "completed"
    assert len(posts(provider, run)) == 1
    check_bill(provider, run)


def test_a_call_that_goes_on_at_its_provider_is_no_longer_blamed_on_it(
    asks, start, shop, provider, another, parked, settings
):
    asks("What is a buoy? [demo: slow 5]")
    run = start()
    shop.turn()
    another()
    Call.objects.filter(run=run).update(poll_at=in_seconds(-1))
    shop.tick()
    settings.AGENT_DEMO_URL = provider.base_url
    Call.objects.filter(run=run).update(poll_at=in_seconds(-1))
    shop.tick()
    run.refresh_from_db()
    assert (run.waiting_for, run.reason) == ("model", "")


def test_a_404_under_another_key_loses_nothing_and_says_so(asks, start, shop, provider, parked):
    asks("What is a buoy? [demo: slow 1.5]")
    run = start()
    shop.turn()
    Call.objects.filter(run=run).update(provider_key="of-another-key")
    provider.fault("404", on="retrieve")
    for _ in range(3):
        Call.objects.filter(run=run).update(poll_at=in_seconds(-1))
        shop.tick()
    run.refresh_from_db()
    assert states(run) == ["submitted"]
    assert run.waiting_for == "provider"
    assert "key" in run.reason
    provider.clear_faults()
    Call.objects.filter(run=run).update(poll_at=in_seconds(-1))
    shop.until(run)
    assert run.status == "completed"
    check_bill(provider, run)


def test_a_call_that_never_ends_is_cancelled_at_its_deadline_and_asked_anew(asks, start, shop, provider, parked):
    asks("What is a buoy? [demo: stuck times=1]")
    run = start()
    shop.turn()
    Call.objects.filter(run=run).update(deadline_at=in_seconds(-1), poll_at=in_seconds(-1))
    tick_until(shop, run, "cancelled")
    shop.until(run)
    assert run.status == "completed"
    assert states(run) == ["cancelled", "completed"]
    assert calls(run)[1].maybe_twice
    check_books(run)
    assert run.spent >= bill(provider, run)


def test_a_call_that_can_neither_end_nor_be_cancelled_is_given_up_as_paid(asks, start, shop, provider, parked):
    asks("What is a buoy? [demo: stuck times=1]")
    run = start()
    shop.turn()
    provider.fault("500", on="cancel")
    Call.objects.filter(run=run).update(deadline_at=in_seconds(-60), poll_at=in_seconds(-1))
    shop.tick()
    assert states(run) == ["submitted"], "it may still come"
    Call.objects.filter(run=run).update(deadline_at=in_seconds(-3600), poll_at=in_seconds(-1))
    shop.tick()
    (call,) = calls(run)
    assert (call.state, call.cost) == ("expired", call.reserved)
    provider.clear_faults()
    shop.until(run)
    assert run.status == "completed"
    check_books(run)


def test_a_key_that_is_refused_to_the_clock_stops_the_provider_visibly(asks, start, shop, provider, parked):
    asks("What is a buoy? [demo: slow 5]")
    run = start()
    shop.turn()
    provider.fault("badkey times=1", on="retrieve")
    Call.objects.filter(run=run).update(poll_at=in_seconds(-1))
    shop.tick()
    assert "OPENAI_API_KEY" in Provider.objects.get(model="").reason
    assert states(run) == ["submitted"]


def test_a_provider_that_hangs_keeps_no_run_of_a_dead_worker_waiting(asks, start, shop, provider, parked):
    """The clock's chores in the database are not behind those at providers."""
    asks("What is a buoy? [demo: slow 30]")
    hanging = start("hanging")
    shop.turn()
    provider.fault("hang 8", on="retrieve")
    Call.objects.filter(run=hanging).update(poll_at=in_seconds(-1))
    lost = start("lost")
    shop.claim()
    Run.objects.filter(pk=lost.pk).update(lease_expires_at=in_seconds(-1))
    stop = threading.Event()
    ticking = threading.Thread(target=clock.run, args=(stop,))
    ticking.start()
    try:
        deadline = time.monotonic() + 6
        while Run.objects.get(pk=lost.pk).status != "queued":
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        stop.set()
        ticking.join(10)
    Call.objects.filter(run=hanging).update(poll_at=None)
    assert len(generations(provider, hanging)) == 1
