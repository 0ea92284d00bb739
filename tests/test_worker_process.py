"""Workers as processes: how they drain, what is left of a run when one dies, and what they do without Redis."""

import json
import os
import signal
from pathlib import Path

import pytest
import redis
from rq import Callback, Queue
from rq.serializers import JSONSerializer

from tests.system import System, is_alive, wait_until


@pytest.fixture
def trial(system: System, tmp_path: Path) -> "Trial":
    system.env["AGENTRUNS_PLANS"] = "tests.slow_plans"
    return Trial(system, tmp_path)


class Trial:
    """A run that keeps its worker busy until `let_go`."""

    def __init__(self, system: System, folder: Path) -> None:
        self.system, self.gate, self.bodies_log = system, folder / "gate", folder / "bodies"

    def submit(self, plan: str = "busy") -> str:
        params = json.dumps({"gate": str(self.gate), "log": str(self.bodies_log)})
        self.run_id = self.system.submit(plan, "Be busy", "--params", params)
        return self.run_id

    def until_body(self, *bodies: str) -> None:
        wait_until(lambda: self.bodies()[-len(bodies) :] == list(bodies), f"bodies end with {bodies}")

    def bodies(self) -> list[str]:
        return self.bodies_log.read_text().split() if self.bodies_log.exists() else []

    def let_go(self) -> dict:
        self.gate.touch()
        return self.system.until_ended(self.run_id)


def causes(run: dict) -> list[str]:
    """Of its interruptions."""
    return [attempt["cause"] for attempt in run["attempts"] if attempt["outcome"] == "interrupted"]


def test_a_killed_horse_is_replaced_at_once_and_finished_steps_stay(trial, system):
    system.start(workers=1, AGENT_LEASE_SECONDS="60")
    trial.submit()
    trial.until_body("prepare", "work")
    horse = system.until_working()
    os.kill(horse, signal.SIGKILL)
    trial.until_body("prepare", "work", "work")  # long before the lease is over
    run = trial.let_go()
    assert run["status"] == "completed"
    assert trial.bodies() == ["prepare", "work", "work"]
    assert causes(run) == ["crash"]
    assert "was killed (signal 9, probably out of memory)" in system.log("worker-1")


def test_a_worker_that_is_asked_to_stop_gives_its_run_back_and_exits_0(trial, system):
    system.start(workers=1)
    trial.submit()
    trial.until_body("prepare", "work")
    horse = system.until_working()
    assert system.kill("worker-1", signal.SIGTERM) == 0
    assert not is_alive(horse)
    run = system.run(trial.run_id)
    assert run["status"] == "queued"
    assert causes(run) == []
    assert "released" in [event["kind"] for event in run["events"]], "at the next boundary, not at the slice's end"
    system.start_worker("worker-2")
    run = trial.let_go()
    assert run["status"] == "completed"
    assert run["interruptions"] == 0


def test_a_horse_whose_worker_was_killed_drains_by_itself(trial, system):
    system.start(workers=1, AGENT_LEASE_SECONDS="60")
    trial.submit()
    trial.until_body("prepare", "work")
    horse = system.until_working()
    system.kill("worker-1", signal.SIGKILL)
    wait_until(lambda: not is_alive(horse), "the horse has ended")
    assert system.run(trial.run_id)["status"] == "queued"
    system.start_worker("worker-2")
    assert trial.let_go()["status"] == "completed"


def test_a_step_without_a_boundary_is_ended_when_the_time_to_drain_is_over(trial, system):
    system.start(workers=1, AGENT_DRAIN_SECONDS="1")
    trial.submit("deaf")
    trial.until_body("prepare", "hang")
    horse = system.until_working()
    assert system.kill("worker-1", signal.SIGTERM) == 0
    assert not is_alive(horse)
    run = system.run(trial.run_id)
    assert run["status"] == "queued"
    assert causes(run) == ["deploy"]


def test_a_second_signal_ends_worker_and_horse_at_once_and_the_run_is_due(trial, system):
    system.start(workers=1, AGENT_LEASE_SECONDS="60")
    trial.submit("deaf")
    trial.until_body("prepare", "hang")
    horse = system.until_working()
    worker = system.processes["worker-1"]
    worker.send_signal(signal.SIGTERM)
    wait_until(lambda: "asked to stop; draining" in system.log("worker-1"), "the worker drains")
    wait_until(lambda: worker.send_signal(signal.SIGTERM) or worker.poll() is not None, "the worker is gone", every=0.3)
    assert not is_alive(horse)
    assert system.run(trial.run_id)["status"] == "queued"


@pytest.mark.once
def test_a_worker_outlives_redis_with_a_horse_at_work(trial, system):
    system.start(workers=1)
    trial.submit()
    trial.until_body("prepare", "work")
    system.kill("redis")
    run = trial.let_go()
    assert run["status"] == "completed"
    assert run["interruptions"] == 0
    system.start_redis()
    again = system.submit("report", "Wells")
    assert system.until_ended(again)["status"] == "completed"
    assert system.processes["worker-1"].poll() is None


@pytest.mark.once
def test_what_was_submitted_without_redis_starts_when_it_is_back(system):
    system.start(workers=1)
    system.kill("redis")
    run_id = system.submit("report", "Wells")
    assert system.run(run_id)["status"] == "queued"
    system.start_redis()
    assert system.until_ended(run_id)["status"] == "completed"


@pytest.mark.once
def test_a_flushed_redis_costs_nothing_but_time(trial, system):
    system.start(workers=1)
    trial.submit()
    trial.until_body("prepare", "work")
    with redis.Redis.from_url(system.env["REDIS_URL"]) as client:
        client.flushall()
    run = trial.let_go()
    assert run["status"] == "completed"
    assert system.until_ended(system.submit("report", "Wells"))["status"] == "completed"


@pytest.mark.once
def test_a_job_that_names_another_function_is_not_run(system, tmp_path):
    system.start(workers=1, clock=False)
    mark = tmp_path / "mark"
    with redis.Redis.from_url(system.env["REDIS_URL"]) as client:
        bell = Queue("agentruns", connection=client, serializer=JSONSerializer)
        job = bell.enqueue_call("os.system", args=(f"touch {mark}",))
        wait_until(lambda: job.get_status(refresh=True) == "failed", "the job is refused")
    assert not mark.exists()
    assert system.processes["worker-1"].poll() is None


@pytest.mark.once
def test_a_job_of_ours_cannot_bring_a_callback_along(system):
    system.start(workers=1, clock=False)
    with redis.Redis.from_url(system.env["REDIS_URL"]) as client:
        bell = Queue("agentruns", connection=client, serializer=JSONSerializer)
        unfit = Callback("os.getcwd")  # called with a job, it would fail, and the job with it
        job = bell.enqueue_call("agentruns.worker.slice", args=("no-run",), result_ttl=60, on_success=unfit)
        wait_until(lambda: job.get_status(refresh=True) == "finished", "the ring was answered")


def test_a_worker_says_that_it_lives_and_that_it_has_stopped(system):
    system.start(workers=1, clock=False, web=True)
    rows = json.loads(
        system.manage(
            "shell", "--no-imports", "-v0", "-c",
            "import json; from agentruns.models import Process;"
            "print(json.dumps([[p.kind, p.pid, p.memory_bytes > 10**7] for p in Process.living('worker')]))",
        )
    )  # fmt: skip
    assert rows == [["worker", system.pid("worker-1"), True]]
    system.kill("worker-1", signal.SIGTERM)
    count = system.manage(
        "shell", "--no-imports", "-v0", "-c",
        "from agentruns.models import Process; print(Process.living('worker').count())",
    )  # fmt: skip
    assert count.strip() == "0"
