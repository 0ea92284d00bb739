"""A step's timeout ends its function, a run's time limit ends the run; neither harms a write of ours."""

import json
import time
from pathlib import Path

import pytest
from django.db import connection
from django.utils import timezone

from agentruns import step
from agentruns.errors import StepTimeout
from agentruns.models import Run
from tests.system import is_alive, wait_until


def test_a_busy_function_is_ended_at_its_timeout_booked_as_failed_and_tried_again(declare, start, shop, monkeypatch):
    monkeypatch.setattr("agentruns.outcome.FIRST_PAUSE_SECONDS", 0.01)
    seen: list[str] = []

    @step(timeout=0.3, retries=1)
    def busy(ctx):
        if seen:
            return "quick this time"
        try:
            while True:
                pass
        except StepTimeout:
            seen.append("StepTimeout")
            raise

    declare(busy)
    run = shop.until(start())
    assert (run.status, seen) == ("completed", ["StepTimeout"])
    first, second = run.attempts.order_by("number")
    assert (first.outcome, second.outcome) == ("failed", "finished")
    assert "StepTimeout: the step ran longer than its timeout" in first.error
    assert (first.ended_at - first.started_at).total_seconds() < 5


def test_a_step_that_times_out_each_time_fails_the_run_by_that_name(declare, start, shop):
    @step(timeout=0.2, retries=0)
    def busy(ctx):
        while True:
            pass

    declare(busy)
    run = shop.until(start())
    assert (run.status, run.reason) == ("failed", "StepTimeout: the step ran longer than its timeout")
    run.retry()
    assert Run.objects.get(pk=run.pk).status == "queued"


def test_a_function_that_swallows_its_timeout_does_not_checkpoint(declare, start, shop):
    @step(timeout=0.3, retries=0)
    def busy(ctx):
        try:
            while True:
                pass
        except BaseException:
            return "made of nothing"

    declare(busy)
    run = shop.until(start())
    assert run.status == "failed"
    assert not run.steps.exists()


def test_a_timeout_in_the_middle_of_our_write_lets_the_write_end_first(declare, start, shop):
    """An exception between a COMMIT and our knowing of it would leave both in doubt."""
    bodies: list[str] = []

    def slowly(execute, sql, *rest):
        done = execute(sql, *rest)
        if "INSERT" in sql and "agentruns_step" in sql:
            deadline = time.monotonic() + 1
            while time.monotonic() < deadline:
                pass
        return done

    @step(timeout=0.3, retries=0)
    def busy(ctx):
        with connection.execute_wrapper(slowly):
            ctx.step("part", bodies.append, "part")
        bodies.append("after")

    declare(busy)
    run = shop.until(start())
    assert run.status == "failed"
    assert run.steps.filter(path="busy/part").exists()
    assert bodies == ["part"]


@pytest.mark.parametrize("timeout", [0.3, 0.4, 0.5])
def test_a_timeout_in_the_authors_own_use_of_the_database_does_not_harm_ours(declare, start, shop, timeout):
    @step(timeout=timeout, retries=0)
    def busy(ctx):
        from django.db import transaction

        while True:
            with transaction.atomic():
                Run.objects.filter(pk=ctx.run_id).values_list("plan").first()

    declare(busy)
    run = shop.until(start())
    connection.close()
    run.refresh_from_db()
    assert (run.status, run.attempts.get().outcome) == ("failed", "failed")


def test_an_effect_that_takes_too_long_is_ended_and_unknown(declare, start, shop):
    def endless(key):
        while True:
            pass

    @step(timeout=0.3, retries=0)
    def busy(ctx):
        ctx.effect("post", endless)

    declare(busy)
    run = shop.until(start())
    assert run.reason == "StepTimeout: the step ran longer than its timeout"
    assert run.keys.get(scope="effect").state in ("intent", "unknown")


def test_what_a_timed_out_step_had_finished_is_replayed(declare, start, shop, monkeypatch):
    monkeypatch.setattr("agentruns.outcome.FIRST_PAUSE_SECONDS", 0.01)
    bodies: list[str] = []

    @step(timeout=0.5, retries=1)
    def busy(ctx):
        ctx.step("part", bodies.append, "part")
        while not run.attempts.exists():
            pass
        return "on time"

    declare(busy)
    run = start()
    shop.until(run)
    assert (run.status, bodies) == ("completed", ["part"])


def test_the_time_limit_of_a_run_ends_it_at_its_next_boundary_and_a_retry_gives_it_again(declare, start, shop):
    waits = [1.2, 0.0]

    @step
    def slow(ctx):
        time.sleep(waits.pop(0))
        return ctx.step("part", len, "abc")

    declare(slow)
    run = shop.until(start(minutes=1 / 60))
    assert run.status == "failed"
    assert run.reason.startswith("The run's time limit is over.")
    assert not run.steps.exists()
    run.retry()
    run.refresh_from_db()
    assert run.deadline_at > timezone.now()
    assert shop.until(run).status == "completed"


def test_a_step_that_no_exception_can_end_is_ended_with_its_process(system, tmp_path: Path):
    log = tmp_path / "log"
    system.start(workers=1, AGENTRUNS_PLANS="tests.engine.stubborn_plans")
    run_id = system.submit("stubborn", "Never end", "--params", json.dumps({"log": str(log)}))
    wait_until(lambda: log.exists() and log.read_text() == "swallowed", "the timeout reached the function")
    horse = system.until_working()
    run = system.until_ended(run_id)
    assert run["status"] == "failed"
    assert [attempt["outcome"] for attempt in run["attempts"]] == ["failed"]
    assert "StepTimeout" in run["attempts"][0]["error"]
    wait_until(lambda: not is_alive(horse), "its process is over")
