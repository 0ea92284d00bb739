"""What people order: cancel, retry, another budget; in every state, and what is said when it does not apply."""

from decimal import Decimal
from time import monotonic

import pytest
from django.contrib.auth import get_user_model

from agentruns import PermanentError, step, worker
from agentruns.errors import WrongState
from agentruns.models import Run
from agentruns.models.moment import in_seconds
from tests.engine.hands import at_once, attempt_of, step_of, wait_of


@step
def only(ctx):
    return "done"


@pytest.fixture
def ada(transactional_db):
    return get_user_model().objects.create_user("ada")


@pytest.fixture
def in_state(declare, start, shop):
    """A run in the state of that name."""

    def in_state(status: str, waiting_for: str = "timer") -> Run:
        declare(only)
        run = start()
        if status == "queued":
            return run
        held = shop.claim()
        if status == "waiting":
            held.park([wait_of(waiting_for, "only/it", 60 if waiting_for in ("timer", "retry") else None)],
                      attempt_of(held, "parked"))  # fmt: skip
        elif status == "completed":
            held.checkpoint([step_of(held, "only")], attempt_of(held), None, 0, 30, "build")
        elif status == "failed":
            held.fail(attempt_of(held, "failed", error="ValueError: no"), "ValueError: no")
        elif status == "cancelled":
            held.cancel()
            held.stop(attempt_of(held, "cancelled"))
        return Run.objects.get(pk=run.pk)

    return in_state


@pytest.mark.parametrize("status", ["queued", "waiting"])
def test_a_run_that_nobody_works_on_is_cancelled_at_once(in_state, ada, status):
    run = in_state(status)
    fence = run.fence
    assert run.cancel(by=ada) is True
    run.refresh_from_db()
    assert (run.status, run.waiting_for, run.cancel_requested_by, run.fence) == ("cancelled", "", ada, fence + 1)
    assert run.events.get(kind="cancelled").by == ada
    assert not run.waits.filter(closed_at=None).exists()


def test_a_running_one_is_told_to_stop_and_asking_twice_changes_nothing(in_state, ada):
    run = in_state("running")
    assert run.cancel(by=ada) is False
    once = Run.objects.filter(pk=run.pk).values().get()
    assert run.cancel() is False
    assert Run.objects.filter(pk=run.pk).values().get() == once
    assert run.events.filter(kind="cancel_asked").count() == 1


def test_a_cancel_is_obeyed_at_the_next_boundary_and_what_was_finished_stays(declare, start, shop, settings):
    settings.AGENT_LEASE_SECONDS = 1
    bodies: list[str] = []

    @step
    def steady(ctx):
        ctx.step("one", bodies.append, "one")
        Run.objects.get(pk=ctx.run_id).cancel()
        for number in range(200):
            ctx.step(f"look-{number}", worker.connection.ensure_connection)
            steady_pause()
        bodies.append("never stopped")

    def steady_pause():
        deadline = monotonic() + 0.02
        while monotonic() < deadline:
            pass

    declare(steady)
    run = start()
    shop.turn()
    run.refresh_from_db()
    assert (run.status, bodies) == ("cancelled", ["one"])
    assert run.steps.filter(path="steady/one").exists()
    assert run.attempts.get().outcome == "cancelled"
    assert run.events.filter(kind="cancelled").count() == 1


def test_no_call_begins_after_a_cancel_has_committed(declare, start, shop, provider):
    before = len(provider.ledger()["calls"])

    @step
    def eager(ctx):
        Run.objects.get(pk=ctx.run_id).cancel()
        return ctx.ask("Say a word.")

    declare(eager)
    run = start()
    shop.turn()
    run.refresh_from_db()
    assert run.status == "cancelled"
    assert not run.calls.exists()
    assert len(provider.ledger()["calls"]) == before


def test_a_cancel_that_is_not_obeyed_is_done_by_force_and_the_worker_decides_nothing_more(declare, start, shop):
    @step
    def deaf(ctx):
        run = Run.objects.get(pk=ctx.run_id)
        run.cancel()
        Run.objects.filter(pk=run.pk).update(cancel_requested_at=in_seconds(-31))
        shop.tick()
        return "too late"

    declare(deaf)
    run = start()
    shop.turn()
    run.refresh_from_db()
    assert run.status == "cancelled"
    assert not run.steps.exists()
    assert run.events.get(kind="cancelled").about["forced"] is True
    assert run.attempts.get().cause == "cancel"


def test_many_cancels_at_once_are_one(in_state):
    run = in_state("queued")
    results = at_once(5, lambda _: Run.objects.get(pk=run.pk).cancel())
    assert results.count(True) == 1
    assert sum(isinstance(result, WrongState) for result in results) == 4
    assert run.events.filter(kind="cancelled").count() == 1


def test_a_cancel_and_a_finish_at_once_end_the_run_once(declare, start, shop):
    declare(only)
    for _ in range(10):
        start()
        held = shop.claim()
        at_once(2, lambda number, held=held: [
            lambda: held.checkpoint([step_of(held, "only")], attempt_of(held), None, 0, 30, "build"),
            lambda: Run.objects.get(pk=held.pk).cancel(),
        ][number]())  # fmt: skip
        run = Run.objects.get(pk=held.pk)
        assert run.status == "completed"
        assert run.events.filter(kind__in=("completed", "cancelled")).count() == 1


@pytest.mark.parametrize("status", ["completed", "cancelled"])
@pytest.mark.parametrize("order", ["cancel", "retry", "change_budget"])
def test_ended_is_final(in_state, status, order):
    run = in_state(status)
    before = Run.objects.filter(pk=run.pk).values().get()
    with pytest.raises(WrongState, match="been cancelled" if status == "cancelled" else "completed"):
        getattr(run, order)(*(["5"] if order == "change_budget" else []))
    assert not run.wake()
    assert not run.rescue("lease")
    assert not run.end_by_force()
    assert Run.objects.filter(pk=run.pk).values().get() == before


def test_a_failed_run_cannot_be_cancelled_and_says_so(in_state):
    with pytest.raises(WrongState, match="has already failed; there is nothing to cancel"):
        in_state("failed").cancel()


@pytest.mark.parametrize(
    ("status", "waiting_for", "said"),
    [
        ("queued", "", "is queued; only a failed run can be retried"),
        ("running", "", "is running; only a failed run"),
        ("waiting", "timer", "is waiting; only a failed run"),
        ("waiting", "approval", "is waiting; only a failed run"),
        ("completed", "", "completed; that is final. Fork it"),
        ("cancelled", "", "been cancelled; that is final. Fork it"),
    ],
)
def test_a_retry_is_refused_with_the_reason(in_state, status, waiting_for, said):
    with pytest.raises(WrongState, match=said):
        in_state(status, waiting_for).retry()


def test_a_retry_goes_on_from_the_finished_steps_and_says_who_ordered_it(declare, start, shop, ada):
    bodies: list[str] = []

    @step
    def first(ctx):
        bodies.append("first")
        return 1

    @step
    def second(ctx):
        bodies.append("second")
        if len(bodies) == 2:
            raise PermanentError("not the first time")
        return 2

    declare(first, second)
    run = shop.until(start())
    run.retry(by=ada)
    assert run.events.get(kind="retried").by == ada
    assert shop.until(run).status == "completed"
    assert bodies == ["first", "second", "second"]
    assert list(run.attempts.filter(path="second").order_by("number").values_list("number", "outcome")) == [
        (1, "failed"), (2, "finished"),
    ]  # fmt: skip


@pytest.mark.parametrize("waiting_for", ["retry", "operator", "provider", "code"])
def test_a_run_that_waits_to_be_tried_again_goes_on_now(in_state, waiting_for):
    run = in_state("waiting", waiting_for)
    run.retry()
    run.refresh_from_db()
    assert (run.status, run.waiting_for, run.wake_at, run.round) == ("queued", "", None, 1)
    assert not run.waits.filter(closed_at=None).exists()


def test_many_retries_at_once_are_one(in_state):
    run = in_state("failed")
    results = at_once(5, lambda _: Run.objects.get(pk=run.pk).retry())
    assert sum(isinstance(result, WrongState) for result in results) == 4
    run.refresh_from_db()
    assert run.round == 1


def test_a_raised_budget_wakes_the_run_that_waits_for_it_and_no_other(in_state, ada):
    run, other = in_state("waiting", "budget"), in_state("waiting", "timer")
    run.change_budget("7.5", by=ada)
    other.change_budget("7.5")
    run.refresh_from_db()
    other.refresh_from_db()
    assert (run.status, run.budget, other.status) == ("queued", Decimal("7.5"), "waiting")
    assert run.events.get(kind="budget").by == ada
