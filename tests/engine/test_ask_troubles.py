"""What the provider's troubles do to a run: passing ones cost it time, losses are paid at most once more, and what
stops the provider stops it for all, visibly."""

import socket
from decimal import Decimal
from time import monotonic

import pytest
from django.db import OperationalError

from agentruns import ModelError, asking, llm, sending, step, worker
from agentruns.errors import AnswerLost, LeaseLost, StepTimeout
from agentruns.heartbeat import Heartbeat
from agentruns.models import Call, Price, Provider, Run, Wait
from agentruns.models.ledger import submitted
from agentruns.models.moment import in_seconds
from tests.engine.money import ASK, calls, check_bill, check_books, generations, posts, states, tick_until


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch):
    monkeypatch.setattr("agentruns.outcome.FIRST_PAUSE_SECONDS", 0.01)


@pytest.fixture
def asks(declare):
    """Declares a plan whose one step asks `prompt`; what the ask raised is in the list that it returns."""

    def asks(prompt="What is a buoy?", retries=0, **options):
        raised = []

        @step(retries=retries)
        def work(ctx):
            try:
                return ctx.ask(prompt, **options)
            except ModelError as error:
                raised.append(error)
                raise

        declare(work)
        return raised

    return asks


def over(run):
    """The time of what the run waits for has come."""
    Wait.objects.filter(run=run, closed_at=None).update(until=in_seconds(-1))
    Run.objects.filter(pk=run.pk).update(wake_at=in_seconds(-1))


def long_ago(run):
    """The calls of the run ended an hour earlier than they did."""
    for call in Call.objects.filter(run=run, settled_at__isnull=False):
        Call.objects.filter(pk=call.pk).update(settled_at=in_seconds(-3600))
    over(run)


# --- passing failures ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("background", ["on", "off"])
@pytest.mark.parametrize("status", ["429 retry-after=0.4", "500 retry-after=0.4", "503 retry-after=0.4"])
def test_a_passing_failure_parks_until_retry_after_and_uses_up_no_retry_of_the_step(
    status, background, asks, start, shop, provider, settings
):
    settings.AGENT_BACKGROUND = background
    raised = asks(f"What is a buoy? [demo: {status} times=1]", retries=0)
    run = start()
    shop.turn()
    run.refresh_from_db()
    assert (run.status, run.waiting_for) == ("waiting", "retry")
    assert "busy" in run.reason
    assert abs((run.wake_at - calls(run)[0].settled_at).total_seconds() - 0.4) < 0.01
    shop.until(run)
    assert run.status == "completed"
    assert not raised
    first, second = calls(run)
    assert second.created_at > run.waits.get(kind="retry").until
    assert (first.state, first.cost, second.state) == ("failed", 0, "completed")
    assert first.key == second.key
    check_bill(provider, run)


def test_without_retry_after_the_pauses_double_and_are_the_same_on_every_look(asks, start, shop, provider, monkeypatch):
    asks("What is a buoy? [demo: 503 times=3]")
    run = start()
    pauses = []
    for _ in range(3):
        shop.turn()
        run.refresh_from_db()
        assert run.waiting_for == "retry"
        failed = calls(run)[-1]
        pauses.append((run.wake_at - failed.settled_at).total_seconds())
        with_wake = run.wake_at
        assert run.wake()
        shop.turn()  # woken too early, by something else: it waits for the same moment
        run.refresh_from_db()
        assert run.wake_at == with_wake
        assert len(posts(provider, run)) == len(pauses)
        long_ago(run)
        shop.tick()
    assert 1.6 <= pauses[0] <= 2.4
    assert 3.2 <= pauses[1] <= 4.8
    assert 6.4 <= pauses[2] <= 9.6
    shop.until(run)
    assert run.status == "completed"
    check_bill(provider, run)


@pytest.mark.parametrize("background", ["on", "off"])
def test_a_provider_that_is_not_there_is_waited_for(background, asks, start, shop, provider, settings):
    settings.AGENT_BACKGROUND = background
    raised = asks()
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        settings.AGENT_DEMO_URL = f"http://127.0.0.1:{nobody.getsockname()[1]}/v1"
        run = start()
        shop.turn()
    run.refresh_from_db()
    assert (run.status, run.waiting_for) == ("waiting", "retry")
    assert run.unknown == 0, "not a byte had left"
    settings.AGENT_DEMO_URL = provider.base_url
    long_ago(run)
    shop.until(run)
    assert (run.status, raised) == ("completed", [])
    check_bill(provider, run)


def test_a_response_that_failed_by_no_fault_of_ours_is_asked_for_again_under_a_new_key(start, shop, another, asks):
    """Its own key would bring the failed one back, at a provider that honours keys."""
    provider = another(idempotency="on")
    raised = asks("What is a buoy? [demo: fail server_error times=1]")
    run = start()
    shop.until(run, "waiting", waiting_for="retry")
    long_ago(run)
    shop.until(run)
    assert (run.status, raised) == ("completed", [])
    assert [one.key.rpartition("ask")[2] for one in calls(run)] == ["", "~2"]
    assert run.spent > calls(run)[1].cost  # a failed one's input is billed
    check_bill(provider, run)


def test_a_failure_that_has_passed_for_a_day_is_the_steps_and_a_person_may_ask_again(asks, start, shop, provider):
    raised = asks("What is a buoy? [demo: 503 times=2]")
    run = start()
    shop.turn()
    Call.objects.filter(run=run).update(settled_at=in_seconds(-25 * 3600))
    over(run)
    shop.until(run)
    assert run.status == "failed"
    assert len(raised) == 1
    assert len(posts(provider, run)) == 1
    run.retry()
    shop.turn()
    run.refresh_from_db()
    assert run.waiting_for == "retry"  # the second 503: asked at once, and a new day of patience
    long_ago(run)
    shop.until(run)
    assert run.status == "completed"
    check_bill(provider, run)


def test_a_persons_retry_does_not_wait_for_the_pause_to_end(asks, start, shop, provider):
    asks("What is a buoy? [demo: 429 retry-after=3600 times=1]")
    run = start()
    shop.turn()
    run.refresh_from_db()
    run.retry()
    shop.until(run)
    assert run.status == "completed"


# --- final failures -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("background", ["on", "off"])
def test_a_request_that_the_provider_will_never_take_fails_once_unpaid_and_a_person_may_ask_anew(
    background, asks, start, shop, provider, settings
):
    settings.AGENT_BACKGROUND = background
    raised = asks("What is a buoy? [demo: nomodel times=1]", retries=3)
    run = shop.until(start())
    assert run.status == "failed"
    assert [error.code for error in raised] == ["model_not_found"]
    assert len(posts(provider, run)) == 1
    assert not generations(provider, run)
    run.retry()
    assert shop.until(run).status == "completed"
    check_bill(provider, run)


# --- a provider that stops all ------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["quota", "badkey"])
def test_quota_and_key_stop_the_provider_for_all_runs_until_one_probe_opens_it(
    fault, asks, start, shop, provider, monkeypatch
):
    raised = asks()
    provider.fault(f"{fault} times=1")
    first = start("one")
    shop.until(first, "waiting", waiting_for="provider")
    others = [start("two"), start("three")]
    for run in others:
        shop.until(run, "waiting", waiting_for="provider")
    runs = [first, *others]
    assert len({run.reason for run in Run.objects.all()}) == 1
    assert Provider.objects.get(model="").reason == first.reason != ""
    assert [len(posts(provider, run)) for run in runs] == [1, 0, 0]
    assert all(run.events.filter(kind="waiting").exists() for run in runs)

    Provider.objects.update(probe_at=in_seconds(-1))
    over(others[0])  # its minute is over: it probes
    shop.tick()
    shop.turn()
    assert not Provider.objects.get(model="").stopped_at
    for run in runs:  # and the others need not wait for theirs
        shop.until(run, seconds=5)
        assert run.status == "completed"
        check_bill(provider, run)
    assert not raised


def test_while_a_provider_is_stopped_one_call_a_minute_probes_and_a_failed_probe_waits_again(
    asks, start, shop, provider
):
    asks()
    provider.fault("quota")
    runs = [start("one"), start("two")]
    for run in runs:
        shop.until(run, "waiting", waiting_for="provider")
    Provider.objects.update(probe_at=in_seconds(-1))
    for run in runs:
        over(run)
    shop.tick()
    shop.turn()
    assert sum(len(posts(provider, run)) for run in runs) == 2
    for run in runs:
        run.refresh_from_db()
        assert (run.status, run.waiting_for) == ("waiting", "provider")
    provider.clear_faults()
    Provider.objects.update(probe_at=in_seconds(-1))
    over(runs[0])
    for run in runs:
        shop.until(run, seconds=5)
        check_bill(provider, run)


def test_a_stop_that_lasts_for_days_fails_no_run(asks, start, shop, provider):
    raised = asks()
    provider.fault("quota")
    run = start()
    for _ in range(25):  # more than a function may be entered in vain
        shop.until(run, "waiting", waiting_for="provider")
        Call.objects.filter(run=run).update(settled_at=in_seconds(-48 * 3600), created_at=in_seconds(-48 * 3600))
        Provider.objects.update(probe_at=in_seconds(-1))
        over(run)
        shop.tick()
    provider.clear_faults()
    shop.until(run)
    assert (run.status, raised) == ("completed", [])
    check_bill(provider, run)


# --- answers that never came --------------------------------------------------------------------------------------


@pytest.mark.parametrize("background", ["on", "off"])
@pytest.mark.parametrize("fault", ["drop", "garbage", "truncate"])
def test_a_post_without_an_answer_is_unknown_and_made_once_more_under_its_key(
    fault, background, asks, start, shop, provider, settings
):
    settings.AGENT_BACKGROUND = background
    asks(f"What is a buoy? [demo: {fault} times=1]")
    run = shop.until(start())
    assert run.status == "completed"
    first, last = calls(run)[0], calls(run)[-1]
    if len(calls(run)) == 1:  # a stream that broke, whose answer the provider had kept under its id
        assert background == "off"
        check_bill(provider, run)
        return
    assert (first.state, last.state, last.maybe_twice) == ("unknown", "completed", True)
    assert first.key == last.key
    assert run.unknown == first.reserved
    check_books(run)


def test_a_second_loss_in_a_row_waits_for_a_person_whose_retry_asks_again(asks, start, shop, provider):
    asks("What is a buoy? [demo: drop times=2]")
    run = start()
    shop.until(run, "waiting", waiting_for="operator")
    assert states(run) == ["unknown", "unknown"]
    assert ASK in run.reason
    run.retry()
    shop.until(run)
    assert run.status == "completed"
    assert states(run) == ["unknown", "unknown", "completed"]
    assert {one.key for one in calls(run)} == {f"{run.pk}:{ASK}"}
    check_books(run)


def test_a_busy_answer_between_two_losses_does_not_make_a_third_call(asks, start, shop, provider, monkeypatch):
    asks()
    submit, faults = llm.Provider.submit, ["drop times=1", "503 retry-after=0 times=1", "drop times=1"]

    def troubled(self, *args, **options):
        provider.fault(faults.pop(0))
        return submit(self, *args, **options)

    monkeypatch.setattr(llm.Provider, "submit", troubled)
    run = start()
    shop.until(run, "waiting", waiting_for="operator")
    assert states(run) == ["unknown", "failed", "unknown"]
    assert len(generations(provider, run)) == 2


def test_a_late_answer_of_a_lost_call_is_taken_by_a_run_that_waits_for_a_person(
    asks, start, shop, provider, monkeypatch
):
    asks("What is a buoy? [demo: drop times=2]")
    run = start()
    shop.until(run, "waiting", waiting_for="operator")
    line = generations(provider, run)[1]
    assert submitted(calls(run)[1], line["id"])
    check_books(run)
    tick_until(shop, run, "unknown", "completed")
    run.refresh_from_db()
    assert run.status == "queued"
    assert not run.waits.filter(closed_at=None).exists(), "a person is not waited for any more"
    shop.until(run)
    assert run.status == "completed"
    assert states(run) == ["unknown", "completed"]
    assert not run.waits.filter(closed_at=None).exists()
    assert len(generations(provider, run)) == 2
    check_books(run)


def test_an_answer_that_no_row_can_keep_is_booked_as_a_failure_with_its_cost(asks, start, shop, provider):
    raised = asks("What is a buoy? [demo: huge 12]")
    run = shop.until(start())
    assert run.status == "failed"
    assert len(raised) == 1
    assert run.spent > 0
    check_bill(provider, run)


def test_an_answer_without_usage_is_booked_at_its_reservation(asks, start, shop, provider):
    asks("What is a buoy? [demo: nousage]")
    run = shop.until(start())
    assert run.status == "completed"
    (call,) = calls(run)
    assert call.cost == call.reserved > 0
    assert "reservation" in call.price_source
    check_books(run)


def test_a_step_that_times_out_over_a_call_books_it_as_unknown(declare, start, shop, provider, settings):
    settings.AGENT_BACKGROUND = "off"

    @step(timeout=1, retries=0)
    def work(ctx):
        return ctx.ask("What is a buoy? [demo: slow 3]")

    declare(work)
    run = shop.until(start())
    assert run.status == "failed"
    assert states(run) == ["unknown"]
    assert run.reserved == 0
    check_books(run)


def test_an_intent_that_a_dead_worker_left_in_a_run_that_has_ended_is_not_reserved_for_ever(
    asks, start, shop, provider, deaths
):
    asks()
    run = start()
    deaths.at("agentruns.sending.Sending.send", run)
    run.refresh_from_db()
    run.cancel()
    assert states(run) == ["intent"]
    shop.tick()
    assert states(run) == ["unknown"]
    check_books(run)


# --- prices -------------------------------------------------------------------------------------------------------


def test_a_steps_own_model_without_a_price_waits_for_one_and_goes_on_when_it_is_saved(asks, start, shop, provider):
    asks(model="house-model")
    run = start()
    shop.until(run, "waiting", waiting_for="price")
    assert "house-model" in run.reason
    assert not posts(provider, run)
    Price.objects.create(model="another-model", input=Decimal(1), output=Decimal(2))
    run.refresh_from_db()
    assert run.status == "waiting"
    Price.objects.create(model="house-model", input=Decimal(2), output=Decimal(8))
    run.refresh_from_db()
    assert run.status == "queued"
    shop.until(run)
    (call,) = calls(run)
    (line,) = generations(provider, run)
    fresh = line["input_tokens"] * 2 + line["output_tokens"] * 8
    assert call.cost == Decimal(fresh) / 1_000_000
    assert (call.price["input"], call.price_source) == ("2.000000", "Price row")
    assert not run.waits.filter(closed_at=None).exists()


def test_a_price_that_came_while_the_worker_was_about_to_park_is_not_missed(asks, start, shop, monkeypatch):
    asks(model="house-model")
    run = start()
    park = Run.park

    def late(self, *args, **options):
        if not Price.objects.exists():
            Price.objects.create(model="house-model", input=Decimal(2), output=Decimal(8))
        return park(self, *args, **options)

    monkeypatch.setattr(Run, "park", late)
    shop.turn()
    run.refresh_from_db()
    assert run.status != "waiting"
    shop.until(run)
    assert run.status == "completed"


def test_a_price_that_changes_in_flight_does_not_change_what_the_call_costs(asks, start, shop, provider, parked):
    Price.objects.create(model="demo", input=Decimal(2), output=Decimal(8))
    asks("What is a buoy? [demo: slow 1]")
    run = start()
    shop.until(run, "waiting", waiting_for="model")
    Price.objects.update(input=Decimal(2000), output=Decimal(8000))
    shop.until(run)
    (call,) = calls(run)
    assert call.cost <= call.reserved
    assert call.price["input"] == "2.000000"


# --- the database is away -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", ["submitted", "settle"])
def test_a_database_that_is_away_for_a_moment_costs_no_call(write, asks, start, shop, provider, monkeypatch):
    asks()
    module = sending if write == "submitted" else asking
    original, failures = getattr(module, write), []

    def away(*args, **options):
        if len(failures) < 2:
            failures.append(1)
            raise OperationalError("server closed the connection unexpectedly")
        return original(*args, **options)

    monkeypatch.setattr(module, write, away)
    run = shop.until(start())
    assert run.status == "completed"
    assert len(failures) == 2
    assert states(run) == ["completed"]
    assert len(posts(provider, run)) == 1
    check_bill(provider, run)


def test_an_intent_whose_commit_was_acknowledged_by_nobody_is_looked_up_and_not_doubled(
    asks, start, shop, provider, monkeypatch
):
    asks()
    original, lost = Run.intend, []

    def unanswered(self, call):
        made = original(self, call)
        if not lost:
            lost.append(1)
            raise OperationalError("the answer to COMMIT never came")
        return made

    monkeypatch.setattr(Run, "intend", unanswered)
    run = shop.until(start())
    assert run.status == "completed"
    assert states(run) == ["completed"]
    check_bill(provider, run)


def test_a_lost_answer_keeps_what_a_stream_had_brought(asks, start, shop, provider, monkeypatch):
    def broken(self, request, *, on_text, **options):
        on_text("the first words")
        raise AnswerLost("the line was cut", "the first words, and more")

    asks()
    monkeypatch.setattr(llm.Provider, "submit", broken)
    run = start()
    shop.until(run, "waiting", waiting_for="operator")
    assert [one.partial for one in calls(run)] == ["the first words, and more"] * 2


def test_a_worker_that_slept_over_its_lease_between_intent_and_post_does_not_send(
    asks, start, shop, provider, monkeypatch
):
    asks()
    run, living, intend, slept = start(), Heartbeat.living, Run.intend, []

    def slow_commit(self, call):
        made = intend(self, call)
        slept.append(made)
        return made

    def lost(self):
        if slept:
            raise LeaseLost("no heartbeat came through in time")
        return living(self)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "intend", slow_commit)
        patch.setattr(Heartbeat, "living", lost)
        shop.turn()
    (call,) = calls(run)
    assert (call.state, call.code, call.cost) == ("failed", "unsent", 0)
    assert not posts(provider, run)
    shop.expire(run)
    assert run.rescue("lease")
    shop.until(run)
    assert run.status == "completed"
    check_bill(provider, run)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_timeout_that_strikes_around_the_post_books_what_is_known(
    moment, declare, start, shop, provider, monkeypatch
):
    """The heartbeat raises it in the middle of whatever the worker does: here before, or just after, the answer."""
    submit = llm.Provider.submit
    struck = []

    @step(retries=1)
    def work(ctx):
        return ctx.ask("What is a buoy?")

    def strike(self, *args, **options):
        if not struck:
            struck.append(1)
            raise StepTimeout("the step ran longer than its timeout")

    def submitting(self, *args, **options):
        strike(self)
        return submit(self, *args, **options)

    declare(work)
    run = start()
    if moment == "before":
        monkeypatch.setattr(llm.Provider, "submit", submitting)
    else:
        monkeypatch.setattr(sending, "submitted", lambda *args: strike(None) or submitted(*args))
    worker.work(shop.claim(), monotonic(), monotonic() + 5)  # one claim, and no clock
    assert states(run) == (["unknown"] if moment == "before" else ["submitted"])
    shop.until(run)
    assert run.status == "completed"
    assert len(generations(provider, run)) == 1
    check_books(run)
