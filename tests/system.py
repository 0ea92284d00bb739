"""agentruns as it runs for people: real processes, a home and a database of their own, and a provider that counts."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from agentruns.supervision import embedded
from tests.machine import Cluster, free_port
from tests.providers import DemoProvider

ROOT = Path(__file__).resolve().parent.parent
PYTHON = sys.executable
NAME, PASSWORD = "admin", "a-password-for-trials"
ENDED = ("completed", "failed", "cancelled")


def wait_until[T](look: Callable[[], T], what: str, seconds: float = 30, every: float = 0.05) -> T:
    """What `look` returns as soon as that is true; fails, saying `what` did not come, after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        if found := look():
            return found
        assert time.monotonic() < deadline, f"after {seconds:g} s still not: {what}"
        time.sleep(every)


def is_alive(pid: int) -> bool:
    """Not so for a zombie, which nobody has waited for yet."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Databases:
    """Databases that are migrated and have the account NAME: made once, copied for each test."""

    def __init__(self, folder: Path, cluster: Cluster | None) -> None:
        self.folder, self.cluster, self.count = folder, cluster, 0
        self.sample = cluster.create("sample") if cluster else f"sqlite:///{folder / 'sample.sqlite3'}"
        env = {**os.environ, "DATABASE_URL": self.sample, "DJANGO_SUPERUSER_PASSWORD": PASSWORD}
        for words in (["migrate"], ["createsuperuser", "--noinput", "--username", NAME, "--email", ""]):
            subprocess.run([PYTHON, "manage.py", *words, "-v0"], cwd=ROOT, env=env, check=True)

    def new(self) -> str:
        """Its URL."""
        self.count += 1
        if self.cluster:
            return self.cluster.create(f"trial_{self.count}", template="sample")
        path = self.folder / f"trial-{self.count}.sqlite3"
        shutil.copyfile(self.folder / "sample.sqlite3", path)
        return f"sqlite:///{path}"


class System:
    """Processes by name: "redis", "worker-1", …, "clock", "web". Each is started alone and can be killed alone.

    system.start(workers=2); run = system.submit("report", "Tides"); system.until_ended(run); system.ledger()
    """

    def __init__(self, home: Path, database: str, provider: DemoProvider) -> None:
        self.home, self.provider = home, provider
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.words: dict[str, int] = {}  # by name, where a process says that it is at work
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/"
        self.name, self.password = NAME, PASSWORD
        self.env = {
            **os.environ, "AGENTRUNS_HOME": str(home), "DATABASE_URL": database, "REDIS_URL": embedded.url(home),
            "AGENT_DEMO_URL": provider.base_url, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT),
        }  # fmt: skip

    # --- processes --------------------------------------------------------------------------------------------------

    def start(self, workers: int = 1, *, clock: bool = True, redis: bool = True, web: bool = False, **env: str) -> None:
        """Starts them, and returns when the workers hear rings and the web answers. `env`: settings for all."""
        self.env.update(env)
        if redis:
            self.start_redis()
        for number in range(1, workers + 1):
            self.spawn(f"worker-{number}", PYTHON, "manage.py", "worker")
        if clock:
            self.spawn("clock", PYTHON, "manage.py", "clock")
        if web:
            self.start_web()
        for number in range(1, workers + 1) if redis else ():
            self.until_hears(f"worker-{number}")

    def start_redis(self) -> None:
        self.spawn("redis", *embedded.command(self.home))
        wait_until(lambda: embedded.answers(embedded.socket_path(self.home)), "Redis answers")

    def start_worker(self, name: str = "worker-1") -> None:
        self.spawn(name, PYTHON, "manage.py", "worker")
        self.until_hears(name)

    def start_web(self) -> None:
        self.spawn(
            "web", PYTHON, "-m", "gunicorn", "--config", "python:agentruns.supervision.web",
            "--bind", f"127.0.0.1:{self.port}", "agentruns.wsgi",
        )  # fmt: skip
        wait_until(lambda: self.get("healthz"), "the web answers", seconds=60)

    def spawn(self, name: str, *argv: str) -> None:
        """Its output goes to a file of its name in the home. It ends when the tests do, even if they are killed."""
        log = open(self.home / f"{name}.log", "ab")  # noqa: SIM115 - handed to the process
        words, word = os.pipe()
        env = self.env | {"AGENTRUNS_PARENT": str(os.getpid()), "AGENTRUNS_READY_FD": str(word)}
        self.processes[name] = subprocess.Popen(
            argv, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[word],
            start_new_session=True,
        )  # fmt: skip
        log.close()
        os.close(word)
        self.words[name] = words

    def until_hears(self, name: str) -> None:
        """Waits for the worker's word that it hears rings."""
        words = self.words.pop(name)
        os.set_blocking(words, False)

        def said() -> bool:
            assert self.processes[name].poll() is None, f"{name} has ended:\n{self.log(name)}"
            try:
                return os.read(words, 1) == b"+"
            except BlockingIOError:
                return False

        wait_until(said, f"{name} is at work", seconds=60)
        os.close(words)

    def pid(self, name: str) -> int:
        return self.processes[name].pid

    def horses(self, name: str) -> list[int]:
        """Pids of the work-horses of a worker: none while it is idle."""
        return [child.pid for child in psutil.Process(self.pid(name)).children()]

    def until_working(self, name: str = "worker-1") -> int:
        """The pid of its horse, as soon as it has one."""
        return wait_until(lambda: self.horses(name), f"{name} has a horse", every=0.01)[0]

    def kill(self, name: str, number: int = signal.SIGKILL) -> int:
        """Sends the signal and waits for the end; the exit code, negative for a signal."""
        process = self.processes.pop(name)
        process.send_signal(number)
        return process.wait(timeout=60)

    def stop(self) -> None:
        """Ends all, horses too."""
        families = [child for process in self.processes.values() if process.poll() is None
                    for child in psutil.Process(process.pid).children(recursive=True)]  # fmt: skip
        for process in self.processes.values():
            process.kill()
        for child in families:
            if child.is_running():
                child.kill()
        for process in self.processes.values():
            process.wait(timeout=10)
        for words in self.words.values():
            os.close(words)

    def log(self, name: str) -> str:
        return (self.home / f"{name}.log").read_text(errors="replace")

    # --- as a person uses it ----------------------------------------------------------------------------------------

    def manage(self, *words: str, code: int = 0, typed: str | None = None) -> str:
        """Runs a command to its end and returns what it prints; fails when its exit code is another."""
        done = subprocess.run(
            [PYTHON, "manage.py", *words], cwd=ROOT, env=self.env, input=typed, capture_output=True, text=True,
            timeout=120,
        )  # fmt: skip
        assert done.returncode == code, f"manage.py {' '.join(words)}: exit {done.returncode}\n{done.stderr}"
        return done.stdout if code == 0 else done.stdout + done.stderr

    def submit(self, plan: str = "report", task: str = "How tides work", *more: str) -> str:
        """The run's id."""
        return self.manage("submit", plan, task, *more).strip()

    def run(self, run_id: str) -> dict[str, Any]:
        """`run ID --json`."""
        found: dict[str, Any] = json.loads(self.manage("run", run_id, "--json"))
        return found

    def until(self, run_id: str, is_so: Callable[[dict[str, Any]], object], what: str, seconds: float = 60) -> Any:
        """The run, as soon as `is_so` of it."""
        last: dict[str, Any] = {}

        def look() -> dict[str, Any] | None:
            last.update(self.run(run_id))
            return last if is_so(last) else None

        try:
            return wait_until(look, what, seconds)
        except AssertionError as error:
            logs = "\n".join(f"--- {name}\n{self.log(name)[-3000:]}" for name in self.processes)
            raise AssertionError(f"{error}\nrun: {json.dumps(last, indent=1)[:3000]}\n{logs}") from None

    def until_ended(self, run_id: str, seconds: float = 90) -> Any:
        return self.until(run_id, lambda run: run["status"] in ENDED, "the run has ended", seconds)

    def get(self, path: str) -> int:
        """The status of a GET; 0 when nobody answers."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def ledger(self) -> Any:
        """What the provider itself has billed."""
        return self.provider.ledger()
