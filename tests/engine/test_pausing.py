"""Pause and resume: one run, or all work. Nothing new begins, nothing is lost, and no wake gets past it."""

import pytest
from django.contrib.auth import get_user_model

from agentruns import step
from agentruns.clock import sweep
from agentruns.errors import WrongState
from agentruns.models import Halt, Run
from agentruns.models.moment import in_seconds
from tests.system import wait_until


@pytest.fixture
def ada(transactional_db):
    return get_user_model().objects.create_user("ada")


@step
def first(ctx):
    return 1


@step
def second(ctx):
    return 2


@pytest.fixture
def quick_beats(settings):
    settings.AGENT_LEASE_SECONDS = 2


def until_a_beat(ctx):
    """Returns when the worker has heard what was ordered."""

    def lease():
        return Run.objects.values_list("lease_expires_at", flat=True).get(pk=ctx.run_id)

    before = lease()
    wait_until(lambda: lease() != before, "a beat", every=0.02)
    before = lease()
    wait_until(lambda: lease() != before, "another", every=0.02)


def sleeping(seconds):
    @step
    def nap(ctx):
        ctx.sleep("a-while", seconds)
        return "awake"

    return nap


def test_a_queued_run_that_is_paused_is_claimed_by_nobody_until_it_is_resumed(declare, start, shop, ada):
    declare(first)
    run = start()
    assert run.pause(by=ada) is True
    run.refresh_from_db()
    assert (run.status, run.waiting_for) == ("waiting", "operator")
    shop.turn()
    shop.tick()
    shop.turn()
    run.refresh_from_db()
    assert run.status == "waiting"
    run.resume(by=ada)
    shop.until(run)
    assert run.status == "completed"
    assert [(event.kind, event.by) for event in run.events.filter(kind__in=("paused", "unpaused"))] == [
        ("paused", ada),
        ("unpaused", ada),
    ]


def test_a_running_run_that_is_paused_stops_at_its_next_boundary(declare, start, shop, quick_beats):
    entered = []

    @step
    def asks_for_it(ctx):
        Run.objects.get(pk=ctx.run_id).pause()
        until_a_beat(ctx)
        return "asked"

    @step
    def after(ctx):
        entered.append(ctx.run_id)

    declare(asks_for_it, after)
    run = shop.until(start(), "waiting", waiting_for="operator")
    assert entered == []
    assert run.steps.get().path == "asks_for_it", "the step at work is finished first"
    run.resume()
    shop.until(run)
    assert run.status == "completed"
    assert run.steps.filter(path="asks_for_it").count() == 1


def test_no_call_begins_after_a_pause_was_committed(declare, start, shop, provider):
    before = provider.ledger()["generations"]

    @step
    def asks(ctx):
        run = Run.objects.get(pk=ctx.run_id)
        if not run.events.filter(kind="paused").exists():
            run.pause()
        return ctx.ask("What is a lamp?")

    declare(asks)
    run = shop.until(start(), "waiting", waiting_for="operator")
    assert run.calls.count() == 0
    assert provider.ledger()["generations"] == before
    run.resume()
    shop.until(run)
    assert provider.ledger()["generations"] == before + 1


def test_what_a_paused_run_waits_for_comes_and_does_not_wake_it(declare, start, shop, parked):
    @step
    def asks(ctx):
        return ctx.ask("What is a lamp?")

    declare(asks)
    run = shop.until(start(), "waiting", waiting_for="model")
    run.pause()
    shop.until(run, "waiting", waiting_for="operator")
    while run.calls.get().is_open:
        shop.tick()
    run.refresh_from_db()
    assert run.status == "waiting"
    run.resume()
    run.refresh_from_db()
    assert run.status == "queued", "the answer is there"
    shop.until(run)
    assert run.status == "completed"


def test_a_paused_run_goes_on_waiting_for_what_it_waited_for(declare, start, shop):
    declare(sleeping(600))
    run = shop.until(start(), "waiting", waiting_for="timer")
    run.pause()
    run.resume()
    run.refresh_from_db()
    assert (run.status, run.waiting_for) == ("waiting", "timer")
    assert run.wake_at is not None


def test_a_time_that_comes_during_a_pause_wakes_the_run_when_it_is_resumed(declare, start, shop):
    declare(sleeping(600))
    run = shop.until(start(), "waiting", waiting_for="timer")
    run.pause()
    run.waits.filter(kind="timer").update(until=in_seconds(-1))
    Run.wake_due()
    run.refresh_from_db()
    assert run.status == "waiting"
    run.resume()
    shop.until(run)
    assert run.status == "completed"


def test_a_rescued_run_that_was_to_be_paused_waits(declare, start, shop):
    declare(first)
    run = start()
    held = shop.claim()
    assert run.pause() is False
    shop.expire(held)
    assert held.rescue("lease")
    run.refresh_from_db()
    assert (run.status, run.waiting_for) == ("waiting", "operator")


def test_a_retry_of_a_paused_run_resumes_it(declare, start, shop):
    declare(first)
    run = start()
    run.pause()
    run.refresh_from_db()
    run.retry()
    shop.until(run)
    assert run.status == "completed"


def test_what_has_ended_is_not_paused_and_what_is_not_paused_not_resumed(declare, start, shop):
    declare(first)
    run = start()
    with pytest.raises(WrongState, match="not paused"):
        run.resume()
    shop.until(run)
    with pytest.raises(WrongState, match="nothing to pause"):
        run.pause()


def test_a_paused_run_can_be_cancelled(declare, start, shop):
    declare(first)
    run = start()
    run.pause()
    assert run.cancel() is True
    assert not run.waits.filter(closed_at=None).exists()


# --- all work ---------------------------------------------------------------------------------------------------------


def test_while_all_work_is_paused_nothing_is_claimed_and_nobody_rings(declare, start, shop, monkeypatch):
    declare(first)
    run = start()
    assert Halt.begin() is True
    assert Halt.begin() is False, "once is enough"
    shop.turn()
    run.refresh_from_db()
    assert run.status == "queued"
    rung = []
    monkeypatch.setattr("agentruns.queues.ring", lambda *args: rung.append(args) or True)
    Run.objects.update(enqueued_at=in_seconds(-60))
    sweep()
    assert rung == []
    Halt.end()
    sweep()
    assert len(rung) == 1
    shop.until(run)
    assert run.status == "completed"


def test_a_run_at_work_stops_at_its_next_boundary_when_all_work_is_paused(declare, start, shop, quick_beats):
    @step
    def stops_everything(ctx):
        Halt.begin()
        until_a_beat(ctx)
        return 1

    declare(stops_everything, second)
    run = start()
    shop.turn()
    run.refresh_from_db()
    assert (run.status, run.at_path) == ("queued", "second")
    Halt.end()
    shop.until(run)
    assert run.status == "completed"


def test_no_call_begins_while_all_work_is_paused(declare, start, shop, provider):
    @step
    def asks(ctx):
        if not Halt.objects.exists():
            Halt.begin()
        return ctx.ask("What is a lamp?")

    declare(asks)
    run = start()
    shop.turn()
    run.refresh_from_db()
    assert (run.status, run.calls.count()) == ("queued", 0)
    Halt.end()
    shop.until(run)
    assert run.calls.count() == 1


def test_nothing_is_resumed_that_was_not_paused(transactional_db):
    with pytest.raises(WrongState, match="nothing to resume"):
        Halt.end()
