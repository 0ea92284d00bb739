"""The whole of it as people have it: real Redis, RQ workers, clock, HTTP; the verdict is the provider's own count."""

import os
import signal
from collections import Counter

import pytest

from tests.foreign import llmock
from tests.system import System, wait_until


def billed(system: System, run_id: str) -> Counter[str]:
    """How often the provider billed each ask of a run, by its path."""
    calls = system.ledger()["calls"]
    return Counter(call["metadata"]["path"] for call in calls if call["metadata"]["run"] == run_id and call["billed"])


def test_a_task_becomes_a_report_and_each_call_is_billed_once(system: System):
    system.start(workers=2)
    run = system.until_ended(system.submit("report", "Compare tidal and wind power for an island"))
    assert run["status"] == "completed"
    tops = [step["path"] for step in run["steps"] if "/" not in step["path"]]
    assert tops == ["outline", "research", "draft", "review"]
    assert set(billed(system, run["id"]).values()) == {1}
    assert len(run["calls"]) == len(billed(system, run["id"]))


def test_what_the_run_says_it_spent_is_what_the_provider_billed(system: System):
    system.start(workers=2)
    run = system.until_ended(system.submit())
    assert run["spent_usd"] == system.ledger()["cost_usd"]
    assert float(run["spent_usd"]) > 0


@pytest.mark.parametrize("background", ["on", "off"])
def test_killed_workers_cost_no_second_payment_of_a_finished_call(system: System, background: str):
    system.start(workers=2, AGENT_LEASE_SECONDS="3", AGENT_BACKGROUND=background)
    run_id = system.submit("report", "How a lock gate works")
    for name in ("worker-1", "worker-2"):
        steps = len(system.run(run_id)["steps"])
        system.until(
            run_id, lambda run, steps=steps: len(run["steps"]) > steps or run["status"] == "completed", "moved"
        )
        for horse in system.horses(name):
            os.kill(horse, signal.SIGKILL)
        system.kill(name)
        system.start_worker(name)
    run = system.until_ended(run_id)
    assert run["status"] == "completed"
    finished = Counter(call["path"] for call in run["calls"] if call["state"] == "completed")
    assert set(finished.values()) == {1}
    # With background mode a call that has its id is never sent again, whoever dies; a stream that was cut off is.
    lost = Counter(call["path"] for call in run["calls"] if call["state"] == "unknown")
    assert billed(system, run_id) == finished + lost
    if background == "on":
        assert sum(lost.values()) <= 2  # at most one a kill, between the POST and its id


def test_a_killed_horse_in_the_middle_of_a_call_reattaches_to_it(system: System):
    system.start(workers=1)
    run_id = system.submit("report", "Slow going [demo: slow 3 times=1]")
    system.until(run_id, lambda run: any(call["state"] == "submitted" for call in run["calls"]), "a call is in flight")
    for horse in system.horses("worker-1"):
        os.kill(horse, signal.SIGKILL)
    run = system.until_ended(run_id)
    assert run["status"] == "completed"
    assert set(billed(system, run_id).values()) == {1}


def test_a_run_submitted_while_redis_is_down_is_kept_and_starts_when_it_is_back(system: System):
    system.start(workers=1, redis=False)
    run_id = system.submit()
    assert system.run(run_id)["status"] == "queued"
    system.start_redis()
    assert system.until_ended(run_id)["status"] == "completed"


@pytest.mark.once
def test_a_flushed_redis_loses_nothing(system: System):
    import redis

    system.start(workers=1)
    run_id = system.submit()
    redis.Redis.from_url(system.env["REDIS_URL"]).flushall()
    assert system.until_ended(run_id)["status"] == "completed"


def test_submit_wait_survives_a_restart_of_what_runs_the_job(system: System):
    import subprocess
    import sys

    system.start(workers=1)
    waiting = subprocess.Popen(
        [sys.executable, "manage.py", "submit", "report", "A long way", "--wait"],
        cwd=os.getcwd(), env=system.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    system.until_working()
    system.kill("worker-1", signal.SIGTERM)
    system.start_worker("worker-1")
    _, said = waiting.communicate(timeout=90)
    assert waiting.returncode == 0, said
    assert "Completed" in said


@pytest.mark.once
def test_four_workers_a_clock_and_the_web_never_see_a_locked_database(system: System):
    system.start(workers=4, web=True)
    runs = [system.submit("report", f"Lighthouse number {n}") for n in range(8)]
    for run_id in runs:
        assert system.until_ended(run_id, seconds=150)["status"] == "completed"
        assert set(billed(system, run_id).values()) == {1}
    for name in system.processes:
        assert "locked" not in system.log(name)


@pytest.mark.once
def test_a_provider_that_no_one_here_wrote_is_driven_without_background_mode(system: System):
    with llmock() as (provider, requests):
        system.start(
            workers=2,
            AGENT_MODEL="gpt-4o",
            OPENAI_BASE_URL=provider.base_url,
            OPENAI_API_KEY="sk-test",
            AGENT_PRICE="1/2",
        )
        run = system.until_ended(system.submit("report", "How bridges carry weight"))
        assert run["status"] == "completed"
        assert float(run["spent_usd"]) > 0
        assert len(requests()["requests"]) == len(run["calls"])
        assert Counter(call["state"] for call in run["calls"]).keys() <= {"completed", "failed"}


@pytest.mark.once
def test_a_worker_that_is_stopped_in_a_call_finishes_nothing_twice(system: System):
    system.start(workers=1)
    run_id = system.submit()
    system.until_working()
    assert system.kill("worker-1", signal.SIGTERM) == 0
    wait_until(lambda: system.run(run_id)["status"] in {"queued", "waiting"}, "the run was given back")
    system.start_worker("worker-1")
    assert system.until_ended(run_id)["status"] == "completed"
    assert set(billed(system, run_id).values()) == {1}
