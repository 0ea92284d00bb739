"""A run worked on in this process, on the test database, against a demo provider over real HTTP."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentruns import Plan, queues, worker
from agentruns.clock import Clock
from agentruns.models import Run
from agentruns.models.moment import in_seconds
from agentruns.plan import plans
from tests.engine import hands, money
from tests.providers import DemoProvider


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoProvider]:
    provider = DemoProvider(Path(tmp_path_factory.mktemp("demo")) / "demo.sqlite3").start(speed=40)
    yield provider
    provider.stop()


@pytest.fixture
def provider(demo: DemoProvider, settings: Any, transactional_db: None) -> Iterator[DemoProvider]:
    """The demo provider, configured, with no faults set; settings that make a test quick."""
    demo.clear_faults()
    settings.AGENT_DEMO_URL = demo.base_url
    settings.REDIS_URL = "unix:///nowhere/redis.sock"  # no bell: the tests come by themselves
    yield demo
    demo.clear_faults()


@pytest.fixture
def declare(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Plan]:
    """Makes a plan of step functions, and it alone, known."""

    def declare(*steps: Any, name: str = "trial", **options: Any) -> Plan:
        plan = Plan(name, steps, **options)
        monkeypatch.setattr(plans, "_plans", {plan.name: plan})
        return plan

    return declare


@pytest.fixture(autouse=True)
def a_forced_end_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    """A heartbeat that ends a worker by force ends these tests too: with 0 they would look green."""
    leave = os._exit
    monkeypatch.setattr("agentruns.heartbeat.os", SimpleNamespace(_exit=lambda code: leave(70)))


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> hands.Line:
    """This thread's line to the database, to be broken at a commit of one's choice."""
    return hands.this_line(monkeypatch)


@pytest.fixture
def start(provider: DemoProvider) -> Callable[..., Run]:
    def start(task: str = "Say what a lighthouse is for", **options: Any) -> Run:
        return Run.start("trial", task, **options)

    return start


class Workshop:
    """Worker and clock by hand: one claim, or turns until the run has come where it should."""

    def claim(self) -> Run:
        run = Run.claim(worker="worker-by-hand", lease=30)
        assert run is not None, "nothing is due"
        return run

    def expire(self, run: Run) -> None:
        """The run's lease is over, as when its worker is gone."""
        Run.objects.filter(pk=run.pk).update(lease_expires_at=in_seconds(-1))
        run.refresh_from_db()

    def turn(self) -> None:
        worker.slice("")

    def tick(self) -> None:
        Clock("clock-by-hand").do_chores()

    def until(self, run: Run, *statuses: str, seconds: float = 20, waiting_for: str = "") -> Run:
        """Turns and ticks until the run has one of `statuses` (default: it has ended), or waits for that."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.turn()
            run.refresh_from_db()
            if run.status in (statuses or ("completed", "failed", "cancelled")) and (
                not waiting_for or run.waiting_for == waiting_for
            ):
                return run
            self.tick()
            time.sleep(0.02)
        raise AssertionError(f"the run stays {run.status}/{run.waiting_for} at {run.at_path}: {run.reason}")


@pytest.fixture
def shop(provider: DemoProvider, settings: Any) -> Iterator[Workshop]:
    settings.AGENT_SLICE_SECONDS = 1
    yield Workshop()
    assert not queues.draining()


@pytest.fixture
def deaths(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> money.Deaths:
    return money.Deaths(shop, monkeypatch)


@pytest.fixture
def parked(monkeypatch: pytest.MonkeyPatch) -> None:
    """No wait for an answer in the worker: every call in flight parks its run; the clock looks soon and often."""
    monkeypatch.setattr("agentruns.entry.SHORT_WAIT_SECONDS", 0)
    monkeypatch.setattr("agentruns.models.ledger.FIRST_POLL_SECONDS", 0.05)
    monkeypatch.setattr("agentruns.polling.FIRST_POLL_SECONDS", 0.05)


@pytest.fixture
def another(provider: DemoProvider, settings: Any, tmp_path: Path) -> Iterator[Callable[..., DemoProvider]]:
    """Starts a second provider with options of its own, and makes it the one in use."""
    started = []

    def another(**options: Any) -> DemoProvider:
        second = DemoProvider(tmp_path / f"demo-{len(started)}.sqlite3").start(speed=40, **options)
        started.append(second)
        settings.AGENT_DEMO_URL = second.base_url
        return second

    yield another
    for second in started:
        second.stop()
