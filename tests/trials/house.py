"""A whole agentruns for one database: web-less, with workers, clock, Redis, provider, oracle and a person."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.machine import Cluster
from tests.providers import DemoProvider
from tests.system import PYTHON, ROOT, Databases, System, is_alive, wait_until

LEASE_SECONDS = 3
ENV = {
    "AGENTRUNS_PLANS": "tests.trials.plans",
    "AGENT_LEASE_SECONDS": str(LEASE_SECONDS),
    "AGENT_DRAIN_SECONDS": "5",
    "AGENT_SLICE_SECONDS": "5",
    "LOG_LEVEL": "info",
}


class House:
    """Its processes go on from trial to trial; `mend` starts again what a trial has ended."""

    def __init__(self, folder: Path, database: str, stack: ExitStack, workers: int = 2) -> None:
        self.folder, self.database = folder, database
        self.workers = [f"worker-{number + 1}" for number in range(workers)]
        self.cluster = None
        if database == "postgresql":
            self.cluster = Cluster(folder / "postgresql").start()
            stack.callback(self.cluster.stop)
        self.provider = DemoProvider(folder / "provider.sqlite3").start(speed=60)
        stack.callback(self.provider.stop)
        self.url = Databases(folder, self.cluster).new()
        home = folder / "home"
        home.mkdir()
        self.system = System(home, self.url, self.provider)
        stack.callback(self.system.stop)
        self.crash = folder / "crash"
        self.system.env |= ENV | {"CRASH_AT": f"@{self.crash}"}
        self.oracle = self._start_oracle(stack)
        self.system.start(workers=workers)
        self.hand_log = stack.enter_context((folder / "hand.log").open("a"))
        self.hand: subprocess.Popen[str] | None = None
        stack.callback(self.end_hand)
        self.start_hand()
        self.order(hook=f"{self.oracle_url}/told")

    def _start_oracle(self, stack: ExitStack) -> subprocess.Popen[str]:
        self.log = self.folder / "oracle.jsonl"
        oracle = subprocess.Popen(
            [sys.executable, ROOT / "tests/trials/oracle.py", self.log], stdout=subprocess.PIPE, text=True
        )
        stack.callback(oracle.kill)
        assert oracle.stdout is not None
        self.oracle_url = f"http://127.0.0.1:{oracle.stdout.readline().strip()}"
        self.system.env["ORACLE_URL"] = self.oracle_url
        return oracle

    # --- a person ---------------------------------------------------------------------------------------------------

    def start_hand(self) -> None:
        self.hand = subprocess.Popen(
            [PYTHON, "-m", "tests.trials.hand"], cwd=ROOT, env=self.system.env, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self.hand_log, text=True,
        )  # fmt: skip
        assert self.hand.stdout is not None and self.hand.stdout.readline() == "ready\n"

    def end_hand(self) -> None:
        if self.hand is not None:
            self.hand.kill()
            self.hand.wait()

    def order(self, **order: Any) -> Any:
        """What the person was told; None when he died over it."""
        hand = self.hand
        assert hand is not None and hand.stdin is not None and hand.stdout is not None
        try:
            hand.stdin.write(json.dumps(order) + "\n")
            hand.stdin.flush()
            line = hand.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            hand.wait()
            self.start_hand()
            return None
        said = json.loads(line)
        return said.get("said", said)

    def submit(self, key: str, **more: Any) -> str:
        """The run's id; a person who dies over it does it again, with the same key."""
        while True:
            if run_id := self.order(submit=f"Tides and {key}", key=key, **more):
                return str(run_id)

    # --- faults -----------------------------------------------------------------------------------------------------

    def arm(self, point: str, number: int = 1, kind: str = "SIGKILL") -> None:
        self.disarm()
        self.crash.write_text(f"{point}:{number}:{kind}")

    def disarm(self) -> bool:
        """True: it had struck."""
        fired = self.crash.with_name("crash.fired")
        struck = fired.exists()
        for path in (self.crash, fired, self.crash.with_name("crash.passed")):
            path.unlink(missing_ok=True)
        return struck

    def struck(self) -> tuple[int, float] | None:
        """Pid of who was struck, and when (epoch seconds)."""
        fired = self.crash.with_name("crash.fired")
        try:
            text = fired.read_text()
            return (int(text), fired.stat().st_mtime) if text else None
        except FileNotFoundError:
            return None

    def fault(self, **fault: Any) -> None:
        """Of the oracle."""
        request = urllib.request.Request(f"{self.oracle_url}/fault", json.dumps(fault).encode())
        urllib.request.urlopen(request, timeout=5).close()

    def kill(self, name: str) -> None:
        """A process and its horses, as when its host is gone."""
        process = self.system.processes[name]
        family = []
        if process.poll() is None:
            family = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.wait()
        for child in family:
            if child.is_running():
                child.kill()

    def horses(self) -> list[int]:
        found = []
        for name in self.workers:
            try:
                found += self.system.horses(name)
            except psutil.NoSuchProcess:
                continue
        return found

    def mend(self) -> None:
        """Whatever has ended is started again; whatever was stopped goes on."""
        for pid in [process.pid for process in self.system.processes.values()] + self.horses():
            try:
                if psutil.Process(pid).status() == psutil.STATUS_STOPPED:
                    os.kill(pid, signal.SIGCONT)
            except (psutil.NoSuchProcess, ProcessLookupError):
                continue
        if self.hand is not None and self.hand.poll() is not None:
            self.start_hand()
        if not is_alive(self.system.pid("redis")):
            self.system.start_redis()
        if not is_alive(self.system.pid("clock")):
            self.system.spawn("clock", PYTHON, "manage.py", "clock")
        for name in self.workers:
            if not is_alive(self.system.pid(name)):
                self.system.words.pop(name, None)
                self.system.start_worker(name)

    @contextmanager
    def keeping_up(self) -> Iterator[None]:
        """Mends before and after."""
        self.mend()
        try:
            yield
        finally:
            self.disarm()
            self.mend()

    def until(self, look: Any, what: str, seconds: float = 40) -> Any:
        return wait_until(look, what, seconds, every=0.03)

    def oracle_lines(self, run: str = "") -> list[dict[str, Any]]:
        with open(self.log) as file:
            lines = [json.loads(line) for line in file]
        return [line for line in lines if not run or line["run"] == run]

    def now(self) -> float:
        return time.time()
