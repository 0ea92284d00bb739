"""Park and wake: no process is held, no wake is lost, none counts twice; sleeps, retries and rounds in circles."""

import time

import pytest

from agentruns import PermanentError, RetryLater, step
from agentruns.errors import Parked
from agentruns.models import Run, Wait
from agentruns.models.ledger import Booking, settle
from agentruns.models.moment import in_seconds
from tests.engine.hands import at_once, attempt_of, call_in_flight, step_of, wait_of


@step
def only(ctx):
    return "done"


@pytest.fixture
def held(declare, start, shop):
    """A run of one step, at work."""
    declare(only)
    start()
    return shop.claim()


def park(run: Run, *waits: Wait) -> Run:
    run.park(waits, attempt_of(run, "parked"))
    return Run.objects.get(pk=run.pk)


def due(run: Run) -> Run:
    """Its time has come."""
    Wait.objects.filter(run=run, until__isnull=False).update(until=in_seconds(-1))
    Run.objects.filter(pk=run.pk).update(wake_at=in_seconds(-1))
    return Run.objects.get(pk=run.pk)


def answer(call) -> None:
    settle(call, Booking(state="completed", answer={"text": "word"}))


def test_a_parked_run_holds_no_process_and_no_lease(held):
    run = park(held, wait_of("timer", "only/nap", 60))
    assert (run.status, run.waiting_for, run.holder, run.lease_expires_at, run.at_since) == (
        "waiting", "timer", "", None, None,
    )  # fmt: skip


def test_a_park_whose_wait_is_over_is_a_release(held):
    call = call_in_flight(held, "only/ask")
    answer(call)
    run = park(held, wait_of("model", "only/ask"))
    assert run.status == "queued"
    assert not Wait.objects.filter(run=run, closed_at=None).exists()


def test_a_park_with_a_time_that_has_come_is_a_release(held):
    assert park(held, wait_of("timer", "only/nap", 0)).status == "queued"


def test_a_wait_for_room_beside_other_calls_is_not_over_because_none_is_at_its_path(held):
    call_in_flight(held, "only/other")
    run = park(held, wait_of("model", "only/ask", 5))
    assert (run.status, run.waiting_for) == ("waiting", "model")


def test_an_answer_wakes_the_run_that_waits_for_it(held):
    call = call_in_flight(held, "only/ask")
    assert park(held, wait_of("model", "only/ask")).status == "waiting"
    answer(call)
    assert Run.objects.get(pk=held.pk).status == "queued"


def test_no_wake_is_lost_between_an_answer_and_a_park(declare, start, shop):
    declare(only)
    for _ in range(15):
        start()
        held = shop.claim()
        call = call_in_flight(held, "only/ask")
        do = [lambda held=held: park(held, wait_of("model", "only/ask")), lambda call=call: answer(call)]
        at_once(2, lambda number, do=do: do[number]())
        run = Run.objects.get(pk=held.pk)
        assert run.status == "queued"
        run.cancel()


def test_waking_twice_is_once(held):
    run = due(park(held, wait_of("timer", "only/nap", 60)))
    assert sorted(at_once(5, lambda _: Run.objects.get(pk=run.pk).wake())) == [False] * 4 + [True]


def test_clocks_that_wake_at_once_wake_once_and_do_not_touch_the_next_wait(declare, start, shop):
    declare(only)
    start()
    run = due(park(shop.claim(), wait_of("timer", "only/nap", 60)))
    seen_by_a_slow_clock = Run.objects.get(pk=run.pk)
    assert Run.wake_due() == 1
    again = park(shop.claim(), wait_of("retry", "only", 60))
    assert again.status == "waiting"
    assert not Run._wake_one(seen_by_a_slow_clock)
    assert Run.wake_due() == 0


@pytest.mark.parametrize("kind", ["model", "timer"])
def test_a_run_that_nothing_open_could_wake_is_woken_by_the_sweep(held, kind):
    call = call_in_flight(held, "only/ask")
    run = park(held, wait_of(kind, "only/ask" if kind == "model" else "only/nap", None if kind == "model" else 60))
    assert Run.wake_due() == 0
    type(call).objects.filter(pk=call.pk).update(state="completed")  # its wake is lost, by a bug of the future
    Wait.objects.filter(run=run, kind="timer").delete()
    assert Run.wake_due() == 1


@pytest.mark.parametrize("give_back", ["park", "release"])
def test_a_cancel_that_the_worker_had_not_seen_ends_the_run_when_it_is_given_back(held, give_back):
    assert Run.objects.get(pk=held.pk).cancel() is False
    if give_back == "park":
        run = park(held, wait_of("approval", "only/yes"))
    else:
        held.release()
        run = Run.objects.get(pk=held.pk)
    assert (run.status, run.waiting_for) == ("cancelled", "")
    assert not Wait.objects.filter(run=run, closed_at=None).exists()
    assert run.events.filter(kind="cancelled").count() == 1


def test_a_run_that_is_completed_waits_for_nothing(held, shop):
    run = park(held, wait_of("retry", "only", 60))
    assert run.wake()  # by something else than its time
    again = shop.claim()
    again.checkpoint([step_of(again, "only")], attempt_of(again), None, 0, 30, "build")
    assert not Wait.objects.filter(run=run, closed_at=None).exists()


# --- sleep --------------------------------------------------------------------------------------------------------


def test_a_sleep_parks_is_slept_once_and_not_again_on_re_entry(declare, start, shop):
    entries: list[float] = []

    @step(retries=0)
    def sleepy(ctx):
        entries.append(time.monotonic())
        ctx.sleep("nap", 0.3)
        ctx.sleep("none", 0)
        if len(entries) == 3:
            raise PermanentError("after the naps")
        return "rested"

    declare(sleepy)
    run = start()
    shop.turn()
    run.refresh_from_db()
    assert (run.status, run.waiting_for) == ("waiting", "timer")
    assert shop.until(run).status == "failed"
    assert entries[1] - entries[0] >= 0.3
    run.retry()
    assert shop.until(run).status == "completed"
    assert len(entries) == 4
    assert run.waits.filter(path="sleepy/nap").count() == 1


def test_a_retry_by_a_person_does_not_cut_a_sleep_short(held):
    run = park(held, wait_of("retry", "only", 60), wait_of("timer", "only/nap", 60))
    run.retry()
    assert list(run.waits.filter(closed_at=None).values_list("kind", flat=True)) == ["timer"]


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), 1e12, "soon", None])
def test_a_sleep_that_is_no_time_is_refused_and_says_so(declare, start, shop, seconds):
    @step
    def sleepy(ctx):
        ctx.sleep("nap", seconds)

    declare(sleepy)
    run = shop.until(start())
    assert run.status == "failed"
    assert run.reason.startswith(f"MisusedContext: sleep('nap', {seconds!r})")


# --- retries ------------------------------------------------------------------------------------------------------


def failing_step(entries: list[str], error: Exception, retries: int = 3):
    @step(retries=retries)
    def faulty(ctx):
        entries.append("entered")
        raise error

    return faulty


def test_a_failure_is_tried_again_after_pauses_that_double_and_then_the_run_fails(declare, start, shop, monkeypatch):
    monkeypatch.setattr("agentruns.outcome.FIRST_PAUSE_SECONDS", 0.1)
    entries: list[str] = []
    declare(failing_step(entries, ValueError("no such word"), retries=2))
    run = shop.until(start())
    assert (run.status, run.reason, len(entries)) == ("failed", "ValueError: no such word", 3)
    first, second, third = run.attempts.order_by("number")
    assert {one.outcome for one in (first, second, third)} == {"failed"}
    assert "raise error" in first.traceback
    assert (second.started_at - first.ended_at).total_seconds() >= 0.08
    assert (third.started_at - second.ended_at).total_seconds() >= 0.16


def test_a_persons_retry_gives_the_full_number_again(declare, start, shop, monkeypatch):
    monkeypatch.setattr("agentruns.outcome.FIRST_PAUSE_SECONDS", 0.01)
    entries: list[str] = []
    declare(failing_step(entries, ValueError("no"), retries=1))
    run = shop.until(start())
    run.retry()
    assert shop.until(run).status == "failed"
    assert len(entries) == 4


def test_a_permanent_error_is_not_tried_again(declare, start, shop):
    entries: list[str] = []
    declare(failing_step(entries, PermanentError("it would not help")))
    assert shop.until(start()).reason == "PermanentError: it would not help"
    assert len(entries) == 1


def test_retry_later_is_tried_again_then(declare, start, shop):
    entries: list[str] = []
    declare(failing_step(entries, RetryLater(0.3), retries=1))
    run = start()
    shop.turn()
    run.refresh_from_db()
    assert run.waiting_for == "retry"
    assert shop.until(run).status == "failed"
    first, second = run.attempts.order_by("number")
    assert 0.3 <= (second.started_at - first.ended_at).total_seconds() < 5


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 1e10])
def test_retry_later_wants_a_time(seconds):
    with pytest.raises(ValueError, match="give a number of seconds"):
        RetryLater(seconds)


def test_retry_later_in_the_past_is_now():
    assert RetryLater(-5).seconds == 0


def test_the_pause_after_a_failure_is_its_own_when_something_else_woke_the_run(held, shop):
    run = due(park(held, wait_of("retry", "only", 60)))
    again = shop.claim() if run.wake() else None
    Wait.objects.filter(run=run).update(closed_at=None)  # as after a wake by a call that settled
    assert park(again, wait_of("retry", "only", 60)).status == "waiting"


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit()])
def test_an_exit_in_a_step_is_its_failure_and_does_not_end_the_worker(declare, start, shop, error):
    declare(failing_step([], error, retries=0))
    run = shop.until(start())
    assert run.reason.startswith(type(error).__name__)


def test_an_exception_that_cannot_say_what_it_is_is_a_failure_like_any_other(declare, start, shop):
    class Unspeakable(Exception):
        def __str__(self):
            raise RuntimeError("not even this")

    declare(failing_step([], Unspeakable(), retries=0))
    run = shop.until(start())
    assert run.reason.startswith("Unspeakable")


# --- circles ------------------------------------------------------------------------------------------------------


def test_a_function_that_is_entered_again_and_again_in_vain_waits_for_an_operator(declare, start, shop, monkeypatch):
    monkeypatch.setattr("agentruns.engine.FRUITLESS_ENTRIES", 3)
    entries: list[str] = []

    @step
    def circling(ctx):
        entries.append("entered")
        ctx._entry.close(Parked(wait_of("approval", "circling/yes")))

    declare(circling)
    run = start()
    for _ in range(5):
        shop.turn()
        run.refresh_from_db()
        run.wake()  # though nobody has said yes
    shop.turn()
    assert len(entries) == 3
    assert run.events.filter(kind="waiting").last().about["wait"] == "operator"
    run.refresh_from_db()
    run.retry()
    run.refresh_from_db()
    assert (run.entries, run.status) == (0, "queued")


@pytest.mark.parametrize("kind", ["slot", "budget", "price", "provider"])
def test_what_others_take_up_may_be_waited_for_any_number_of_times(held, kind):
    assert park(held, wait_of(kind, "only/ask", 60)).entries == 0
