"""Whatever is ours closes ctx for good: no guard of an author's, or a library's, turns our trouble into a result."""

import time
from collections.abc import Callable
from time import monotonic

import pytest
from django.db import DataError

from agentruns import queues, step, worker
from agentruns.errors import CancelAsked, DatabaseTrouble, Draining, Interruption, LeaseLost, Parked
from agentruns.models import Run
from agentruns.models.moment import in_seconds
from agentruns.queues import horse
from tests.engine.hands import failing


@pytest.fixture(autouse=True)
def quick_beats(settings, monkeypatch):
    settings.AGENT_LEASE_SECONDS = 1
    monkeypatch.setattr(horse, "_draining_since", None)


def lose_lease(ctx) -> None:
    Run.objects.filter(pk=ctx.run_id).update(lease_expires_at=in_seconds(-1))
    assert Run.objects.get(pk=ctx.run_id).rescue("lease")


def ask_to_cancel(ctx) -> None:
    Run.objects.get(pk=ctx.run_id).cancel()


def drain(ctx) -> None:
    horse.drain()


def sleep(ctx) -> None:
    ctx.sleep("nap", 60)


def break_database(ctx) -> None:
    with failing(DataError("too long for its column"), on="agentruns_step"):
        ctx.step("part", len, "abc")


TROUBLES = {
    "lease lost": (lose_lease, LeaseLost, "queued"),
    "cancel": (ask_to_cancel, CancelAsked, "cancelled"),
    "drain": (drain, Draining, "queued"),
    "park": (sleep, Parked, "waiting"),
    "database": (break_database, DatabaseTrouble, "waiting"),
}


def until_closed(ctx, trouble: Callable, guard: type[BaseException]) -> list[BaseException]:
    """Meets the trouble under a guard, goes on regardless, and returns what each further use of ctx raised."""
    try:
        trouble(ctx)
        for number in range(200):
            ctx.step(f"look-{number}", time.sleep, 0.02)
    except guard:
        pass
    uses = [
        lambda: ctx.step("one-more", len, "abc"), lambda: ctx.ask("Anything?"), lambda: ctx.sleep("more", 1),
        lambda: ctx.usage("u", "demo"), lambda: ctx.external("x", "web"), lambda: ctx.prior["only"],
        lambda: list(ctx.prior), lambda: ctx.task, lambda: ctx.params, lambda: ctx.key, lambda: ctx.run_id,
    ]  # fmt: skip
    raised: list[BaseException] = []
    for use in uses:
        try:
            use()
        except BaseException as error:
            raised.append(error)
    assert len(raised) == len(uses)
    return raised


@pytest.mark.parametrize("name", TROUBLES)
def test_a_function_that_swallows_everything_cannot_checkpoint_after_ctx_closed(declare, start, shop, name):
    trouble, kind, status = TROUBLES[name]
    raised: list[BaseException] = []

    @step
    def only(ctx):
        raised.extend(until_closed(ctx, trouble, BaseException))
        return "made of nothing"

    declare(only)
    start()
    worker.work(run := shop.claim(), monotonic(), monotonic() + 60)
    horse._draining_since = None
    assert {type(error) for error in raised} == {kind}
    assert len({id(error) for error in raised}) == 1
    run.refresh_from_db()
    assert run.status == status
    assert not run.steps.filter(path="only").exists()
    assert not run.steps.filter(path="only/one-more").exists()
    assert not run.attempts.filter(outcome__in=("failed", "finished")).exists()


@pytest.mark.parametrize("name", TROUBLES)
def test_an_authors_except_exception_does_not_see_our_trouble(declare, start, shop, name):
    trouble, _, status = TROUBLES[name]
    seen: list[str] = []

    @step
    def only(ctx):
        until_closed(ctx, trouble, Exception)
        seen.append("went on")

    declare(only)
    start()
    worker.work(run := shop.claim(), monotonic(), monotonic() + 60)
    horse._draining_since = None
    assert seen == []
    run.refresh_from_db()
    assert run.status == status


def test_an_interruption_that_is_raised_again_as_something_else_is_still_ours(declare, start, shop):
    @step
    def only(ctx):
        try:
            ctx.sleep("nap", 60)
        except BaseException as error:
            raise ValueError("the library gave up") from error

    declare(only)
    run = start()
    shop.turn()
    run.refresh_from_db()
    assert (run.status, run.waiting_for, run.failures) == ("waiting", "timer", 0)


def test_a_drain_is_obeyed_between_two_sub_steps_and_counts_as_no_failure_and_no_loss(declare, start, shop):
    bodies: list[str] = []
    drained: list[bool] = []

    @step
    def only(ctx):
        ctx.step("one", bodies.append, "one")
        if not drained:
            drained.append(True)
            horse.drain()
        ctx.step("two", bodies.append, "two")
        return "both"

    declare(only)
    run = start()
    shop.turn()
    assert queues.draining()
    horse._draining_since = None
    run.refresh_from_db()
    assert (run.status, run.failures, run.losses, run.entries) == ("queued", 0, 0, 0)
    assert run.events.filter(kind="released").count() == 1
    shop.until(run)
    assert (run.status, bodies) == ("completed", ["one", "two"])
    assert not run.attempts.filter(outcome__in=("failed", "interrupted")).exists()


def test_a_drain_is_obeyed_between_two_steps_and_the_next_one_is_not_entered(declare, start, shop):
    bodies: list[str] = []

    @step
    def first(ctx):
        bodies.append("first")
        horse.drain()
        return 1

    @step
    def second(ctx):
        bodies.append("second")
        return 2

    declare(first, second)
    run = start()
    shop.turn()
    horse._draining_since = None
    run.refresh_from_db()
    assert (run.status, run.at_path, bodies) == ("queued", "second", ["first"])
    shop.until(run)
    assert [(one.path, one.number, one.outcome) for one in run.attempts.order_by("pk")] == [
        ("first", 1, "finished"), ("second", 1, "finished"),
    ]  # fmt: skip


def test_a_worker_that_drains_claims_nothing(declare, start, shop):
    @step
    def only(ctx):
        return 1

    declare(only)
    run = start()
    horse.drain()
    shop.turn()
    horse._draining_since = None
    run.refresh_from_db()
    assert (run.status, run.fence) == ("queued", 0)


def test_no_new_work_begins_when_the_heartbeat_does_not_come_through(declare, start, shop, monkeypatch):
    """Also when it fails by an exception that nobody thought of: the authority runs out by itself."""
    monkeypatch.setattr("threading.excepthook", lambda _: None)
    monkeypatch.setattr(Run, "renew", lambda self, lease: 1 / 0)
    caught: list[type] = []

    @step
    def only(ctx):
        time.sleep(1.2)
        try:
            ctx.ask("Anything new?")
        except Interruption as why:
            caught.append(type(why))
            raise

    declare(only)
    start()
    worker.work(run := shop.claim(), monotonic(), monotonic() + 60)
    assert caught == [LeaseLost]
    assert not run.calls.exists()


def test_a_claim_that_was_answered_too_late_is_not_worked_on(declare, start, shop):
    """The lease began when the claim was sent, however long the answer took."""
    bodies: list[str] = []
    declare(step(name="only")(lambda ctx: bodies.append("entered")))
    start()
    assert worker.work(shop.claim(), monotonic() - 1, monotonic() + 60) == "lost"
    assert bodies == []
