"""A worker that lost its claim decides nothing, is stopped, and is shown."""

from time import monotonic
from types import SimpleNamespace

import pytest

from agentruns import step, worker
from agentruns.engine import Walk
from agentruns.entry import Entry
from agentruns.errors import LeaseLost
from agentruns.heartbeat import Heartbeat
from agentruns.models import Attempt, Call, Event, Run, Step, Wait
from agentruns.models.moment import in_seconds
from tests.engine.hands import attempt_of, call_of, step_of, wait_of


@step
def only(ctx):
    return "done"


@step
def second(ctx):
    return "done too"


DECISIONS = {
    "enter": lambda run: run.enter("second", 1, "build"),
    "keep a sub-step": lambda run: run.checkpoint_part([step_of(run, "only/part", kind="part")], 30, "build"),
    "checkpoint": lambda run: run.checkpoint([step_of(run, "only")], attempt_of(run), "second", 1, 30, "build"),
    "finish": lambda run: run.checkpoint([step_of(run, "only")], attempt_of(run), None, 0, 30, "build"),
    "complete": lambda run: run.complete("build"),
    "park": lambda run: run.park([wait_of("timer", "only/nap", 60)], attempt_of(run, "parked")),
    "fail": lambda run: run.fail(attempt_of(run, "failed"), "no use"),
    "stop": lambda run: run.stop(attempt_of(run, "cancelled")),
    "release": lambda run: run.release(attempt_of(run, "parked")),
    "renew": lambda run: run.renew(30),
    "intend": lambda run: run.intend(call_of(run, "only/ask")),
}


def take_over(run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(lease_expires_at=in_seconds(-1))
    assert Run.objects.get(pk=run.pk).rescue("lease")
    assert Run.claim(worker="another", lease=30) is not None


def give_back(run: Run) -> None:
    run.release()


def end_by_force(run: Run) -> None:
    run.cancel()
    assert Run.objects.get(pk=run.pk).end_by_force()


def all_of(run: Run) -> list:
    rows = [list(kind.objects.filter(run=run).order_by("pk").values()) for kind in (Step, Attempt, Call, Wait, Event)]
    return [*rows, Run.objects.filter(pk=run.pk).values().get()]


@pytest.mark.parametrize("since", [take_over, give_back, end_by_force])
@pytest.mark.parametrize("decision", DECISIONS.values(), ids=DECISIONS)
def test_a_stale_worker_cannot(declare, start, shop, decision, since):
    declare(only, second)
    start()
    stale = shop.claim()
    since(Run.objects.get(pk=stale.pk))
    before = all_of(stale)
    with pytest.raises(LeaseLost):
        decision(stale)
    assert all_of(stale) == before


@pytest.mark.parametrize("decision", DECISIONS.values(), ids=DECISIONS)
def test_the_holder_of_the_claim_can(declare, start, shop, decision):
    """The other half: it is the claim that the decisions above lack, and nothing else."""
    declare(only, second)
    start()
    holder = shop.claim()
    before = all_of(holder)
    decision(holder)
    assert all_of(holder) != before


def test_what_a_stale_worker_made_is_not_kept_and_it_is_shown(declare, start, shop):
    bodies = []

    @step
    def slow(ctx):
        bodies.append(ctx.run_id)
        if len(bodies) == 1:
            take_over(Run.objects.get(pk=ctx.run_id))
        return f"by entry {len(bodies)}"

    declare(slow, second)
    run = start()
    shop.turn()
    assert not run.steps.exists()
    shown = run.events.get(kind="lease_lost")
    run.refresh_from_db()
    assert (run.status, run.worker, shown.version) == ("running", "another", run.version)
    shop.expire(run)
    run.rescue("lease")
    assert shop.until(run).status == "completed"
    assert run.steps.get(path="slow").value() == "by entry 2"


def test_a_worker_whose_run_was_taken_over_is_stopped_by_its_heartbeat(declare, start, shop, settings):
    settings.AGENT_LEASE_SECONDS = 1

    @step
    def endless(ctx):
        take_over(Run.objects.get(pk=ctx.run_id))
        while True:
            pass

    declare(endless)
    run = start()
    shop.turn()
    assert run.events.filter(kind="lease_lost").exists()
    assert not run.attempts.exclude(outcome="interrupted").exists()


def test_a_rescue_that_comes_too_late_takes_nothing_from_the_next_holder(declare, start, shop):
    declare(only, second)
    start()
    first = shop.claim()
    seen_by_a_clock = Run.objects.get(pk=first.pk)
    first.release()
    holder = shop.claim()
    Run.objects.filter(pk=holder.pk).update(lease_expires_at=in_seconds(-1))
    assert not seen_by_a_clock.rescue("lease")
    assert Run.objects.get(pk=holder.pk).holder == holder.holder


def test_a_rescue_in_the_middle_of_a_broken_commit_is_not_taken_for_our_own_write(
    declare, start, shop, line, monkeypatch
):
    """The rescue has written the attempt of this number: as interrupted."""
    bodies: list[str] = []
    declare(only, step(name="second")(lambda ctx: bodies.append(ctx.run_id)))
    start()
    stale = shop.claim()
    monkeypatch.setattr("agentruns.persist.time", SimpleNamespace(sleep=lambda _: take_over(stale)))
    line.commits, line.refused = 0, {1}
    assert worker.work(stale, monotonic(), monotonic() + 60) == "lost"
    assert bodies == []
    assert not Step.objects.filter(run=stale).exists()


def test_a_stale_worker_that_is_ended_by_force_leaves_the_next_holders_calls_alone(declare, start, shop):
    plan = declare(only)
    start()
    stale = shop.claim()
    walk = Walk(stale, Heartbeat(stale, monotonic(), monotonic(), lambda _: None))
    walk.entry = Entry(stale, plan, plan.steps[0], "only", stale.at_number, walk.authority, set())
    mine = stale.intend(call_of(stale, "only/mine"))
    take_over(stale)
    holder = Run.objects.get(pk=stale.pk)
    other = holder.intend(call_of(holder, "only/other"))
    with pytest.raises(LeaseLost):
        worker.end_by_force(walk, "lease")
    assert [Call.objects.get(pk=call.pk).state for call in (mine, other)] == ["unknown", "intent"]
