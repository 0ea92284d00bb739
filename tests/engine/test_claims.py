"""One worker at a time: who gets a run, for how long, and what becomes of it when its worker is gone."""

import pytest
from django.contrib.auth import get_user_model
from django.db import OperationalError

from agentruns import step, worker
from agentruns.models import Process, Run
from agentruns.models.moment import in_seconds
from tests.engine.hands import at_once, attempt_of, step_of


@step
def only(ctx):
    return "done"


@pytest.fixture
def begun(declare, start):
    """A run of one step, which nobody has claimed."""
    declare(only)
    return start()


def claim(name: object = "worker", lease: float = 30, **more) -> Run | None:
    return Run.claim(worker=str(name), lease=lease, **more)


def expired(run: Run) -> Run:
    Run.objects.filter(pk=run.pk).update(lease_expires_at=in_seconds(-1))
    return Run.objects.get(pk=run.pk)


def born(*workers: tuple[str, str]) -> None:
    """Processes of these names and builds, a minute apart."""
    for number, (name, build) in enumerate(workers):
        Process.born(name, "worker", "host", 1, build)
        Process.objects.filter(pk=name).update(started_at=in_seconds(60 * (number - len(workers))))


def lost(run: Run, cause: str = "lease", **more) -> Run:
    """Claimed, and its worker gone."""
    held = claim()
    assert held is not None and held.pk == run.pk
    assert expired(held).rescue(cause, **more)
    return Run.objects.get(pk=run.pk)


def test_of_many_claims_at_once_exactly_one_wins(begun):
    winners = [run for run in at_once(10, claim) if run is not None]
    assert [run.pk for run in winners] == [begun.pk]
    assert Run.objects.get(pk=begun.pk).holder == winners[0].holder


def test_as_many_claims_as_runs_leave_nobody_without_one(declare, start):
    declare(only)
    runs = {start().pk for _ in range(12)}
    assert {run.pk for run in at_once(12, claim)} == runs


def test_the_higher_priority_goes_first_then_the_older(declare, start):
    declare(only)
    runs = [start(), start(priority=5), start(), start(priority=5)]
    assert [claim().pk for _ in runs] == [runs[1].pk, runs[3].pk, runs[0].pk, runs[2].pk]


def test_the_owner_with_the_fewest_running_goes_first(declare, start):
    declare(only)
    ada, ben = (get_user_model().objects.create_user(name) for name in ("ada", "ben"))
    of_ada, of_ben, of_nobody = [start(owner=ada) for _ in range(3)], start(owner=ben), [start(), start()]
    order = [claim().pk for _ in range(6)]
    assert order == [run.pk for run in (of_ada[0], of_ben, of_nobody[0], of_ada[1], of_nobody[1], of_ada[2])]


def test_the_fence_grows_with_each_claim_and_each_rescue(begun):
    fences, holders = [begun.fence], set()
    for _ in range(2):
        held = claim()
        fences.append(held.fence)
        holders.add(held.holder)
        assert expired(held).rescue("lease")
        fences.append(Run.objects.get(pk=begun.pk).fence)
    assert fences == [0, 1, 2, 3, 4]
    assert len(holders) == 2


def test_a_run_with_a_living_lease_is_never_handed_out_again(begun):
    held = claim(lease=30)
    assert not held.rescue("lease")
    assert claim() is None


def test_a_beat_keeps_a_lease_alive(begun):
    held = expired(claim())
    held.renew(30)
    assert not held.rescue("lease")


def test_many_rescues_at_once_are_one(begun):
    held = expired(claim())
    done = at_once(6, lambda _: Run.objects.get(pk=held.pk).rescue("lease"))
    assert sorted(done) == [False] * 5 + [True]
    run = Run.objects.get(pk=held.pk)
    assert (run.fence, run.losses, run.attempts.count()) == (2, 1, 1)


def test_a_parent_rescues_only_what_its_own_dead_horse_held(begun):
    held = claim("worker-1")
    assert not held.rescue("crash", dead_worker="worker-2")
    assert held.rescue("crash", dead_worker="worker-1")
    assert held.events.get(kind="interrupted").about["cause"] == "crash"


def test_a_step_that_loses_its_worker_three_times_fails_by_name_and_can_be_retried(begun):
    for _ in range(2):
        assert lost(begun).status == "queued"
    run = lost(begun)
    assert run.status == "failed"
    assert run.reason.startswith("worker lost 3 times in step only")
    assert run.events.get(kind="failed").about["error"] == run.reason
    assert [(one.number, one.outcome) for one in run.attempts.order_by("number")] == [
        (number, "interrupted") for number in (1, 2, 3)
    ]
    run.retry()
    assert lost(begun).status == "queued"


def test_losses_are_counted_in_a_row_only(begun):
    lost(begun)
    lost(begun)
    held = claim()
    held.checkpoint_part([step_of(held, "only/part", kind="part")], 30, "build")
    assert expired(held).rescue("lease")
    run = Run.objects.get(pk=begun.pk)
    assert (run.status, run.losses) == ("queued", 1)


def test_a_loss_after_a_drain_began_does_not_count(begun):
    for _ in range(5):
        run = lost(begun, "deploy", drained=True)
    assert (run.status, run.losses) == ("queued", 0)


def test_a_run_whose_worker_is_gone_ends_at_once_when_a_cancel_was_asked(begun):
    held = claim()
    assert held.cancel() is False
    assert expired(held).rescue("lease")
    assert Run.objects.get(pk=begun.pk).status == "cancelled"


def test_a_claim_whose_commit_was_not_answered_is_found(begun, monkeypatch):
    update, calls = type(Run.objects.all()).update, []

    def unanswered(self, **values):
        done = update(self, **values)
        if "holder" in values and not calls:
            calls.append(values["holder"])
            raise OperationalError("the connection was closed")
        return done

    monkeypatch.setattr(type(Run.objects.all()), "update", unanswered)
    held = claim()
    assert held is not None and [held.holder] == calls


def test_a_run_that_a_newer_build_advanced_is_left_to_it(begun):
    Run.objects.filter(pk=begun.pk).update(build="new")
    born(("old-worker", "old"), ("new-worker", "new"))
    assert claim(newer_builds=Process.builds_newer_than("old-worker")) is None
    assert claim(newer_builds=Process.builds_newer_than("new-worker")) is not None


def test_a_run_that_an_older_build_advanced_may_be_taken_by_a_rolled_back_worker(begun):
    Run.objects.filter(pk=begun.pk).update(build="new")
    born(("first", "old"), ("second", "new"), ("rolled-back", "old"))
    assert claim(newer_builds=Process.builds_newer_than("rolled-back")) is not None


def test_a_run_that_waits_for_code_goes_on_when_a_worker_with_that_code_boots(declare, start, shop):
    declare(only)
    run = start()
    declare(only, name="another")
    shop.until(run, "waiting", waiting_for="code")
    worker.boot()
    run.refresh_from_db()
    assert run.status == "waiting"
    declare(only)
    worker.boot()
    run.refresh_from_db()
    assert (run.status, run.at_number) == ("queued", 0)
    assert not run.waits.filter(closed_at=None).exists()
    assert shop.until(run).status == "completed"


def test_a_run_whose_next_step_is_gone_waits_for_code_too(declare, start, shop):
    @step
    def first(ctx):
        return 1

    declare(first, only)
    run = start()
    held = shop.claim()
    held.checkpoint([step_of(held, "first")], attempt_of(held), "only", 1, 30, "old")
    held.release()
    declare(first)
    shop.until(run, "waiting", waiting_for="code")
    assert "'only'" in run.reason
    worker.boot()
    assert Run.objects.get(pk=run.pk).status == "waiting"
    declare(first, step(name="renamed", aliases=["only"])(lambda ctx: 2))
    worker.boot()
    assert shop.until(run).status == "completed"
