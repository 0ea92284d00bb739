"""`manage.py up` as a person starts it: what it says, what it keeps alive, and what is left when it is gone."""

import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from agentruns.supervision import embedded
from tests.machine import free_port
from tests.system import ROOT, is_alive, wait_until

MEGABYTE = 2**20


class Up:
    """One `up` with two workers, on any free port."""

    def __init__(self, home: Path, *words: str, port: int = 0, **env: str) -> None:
        self.env = {**os.environ, "AGENTRUNS_HOME": str(home), "DEMO_SPEED": "20", **env}
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "up", "--port", str(port), *words], cwd=ROOT, env=self.env,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(iter(self.process.stdout.readline, ""))

    @property
    def said(self) -> str:
        return "".join(self.lines)

    def until_said(self, pattern: str, seconds: float = 60) -> re.Match[str]:
        try:
            return wait_until(lambda: re.search(pattern, self.said), f"it says {pattern!r}", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}; it said:\n{self.said}") from None

    def until_ready(self) -> "Up":
        self.until_said(r"Processes: .*\n")
        self.work_until_ready = sum(sum(process.cpu_times()[:2]) for process in self.family())
        return self

    def pids(self) -> dict[str, int]:
        """Of its children by name, as it says them."""
        named = re.findall(r"([a-z]+(?:-\d+)?) (\d+)", self.until_said(r"Processes: (.*)\n")[1])
        named += re.findall(r"up +\| (\S+) is process (\d+)", self.said)
        return {name: int(pid) for name, pid in named}

    def family(self) -> list[psutil.Process]:
        me = psutil.Process(self.process.pid)
        return [me, *me.children(recursive=True)]

    @property
    def port(self) -> int:
        return int(self.until_said(r"Address +http://127.0.0.1:(\d+)/")[1])

    def manage(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *words], cwd=ROOT, env=self.env, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=90,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=60)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One that several tests look at, on a home whose path is too long for a Redis socket in it."""
    home = tmp_path_factory.mktemp("a-home-with-a-long-name-" + "x" * 80)
    running = Up(home).until_ready()
    yield running
    assert running.end() == 0


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    """Starts one that a test may end as it likes."""
    started: list[Up] = []

    def start(**options: Any) -> Up:
        started.append(Up(tmp_path / "home", **options).until_ready())
        return started[-1]

    yield start
    for one in started:
        for process in one.family() if one.process.poll() is None else ():
            process.kill()


def left(family: list[psutil.Process]) -> list[psutil.Process]:
    return [process for process in family if is_alive(process.pid)]


def answer_of(up: Up) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{up.port}/healthz", timeout=30) as answer:
        return int(answer.status)


def refusal(home: Path, *words: str, **env: str) -> str:
    """What an `up` says that does not start: one line, exit 2."""
    running = Up(home, *words, **env)
    assert running.process.wait(timeout=40) == 2, running.said
    wait_until(lambda: running.lines, "it says why")
    assert len(running.lines) == 1, running.said
    return running.said


def test_it_is_ready_in_ten_seconds_of_two_cores(up):
    """Of its own ones: whatever else this machine does meanwhile takes its time, not its work."""
    assert up.until_said(r"Ready in [\d.]+ s: http://127.0.0.1:\d+/")
    assert up.work_until_ready / 2 < 10


def test_it_says_what_is_used_and_answers(up):
    for pattern in (r"Address +http://127.0.0.1:\d+/", r"Account +admin, password \S{16}  \(shown only this once\)",
                    r"Database +SQLite, /.*/agentruns.sqlite3", r"Redis +embedded, /.*redis.sock",
                    r"Model +DEMO: scripted, no AI", r"Budget +5.00 USD a run"):  # fmt: skip
        assert re.search(pattern, up.said), (pattern, up.said)
    assert answer_of(up) == 200


def test_the_password_that_it_shows_is_that_of_the_account(up):
    password = up.until_said(r"password (\S{16})")[1]
    script = "from django.contrib.auth import authenticate as a; print(a(username='admin', password={!r}).is_superuser)"
    assert up.manage("shell", "--no-imports", "-v0", "-c", script.format(password)).strip() == "True"


def test_idle_it_takes_less_than_500_megabytes(up):
    assert sum(process.memory_info().rss for process in up.family()) < 500 * MEGABYTE


def test_a_second_one_on_the_same_home_says_where_the_first_is(up):
    said = refusal(Path(up.env["AGENTRUNS_HOME"]))
    assert f"already runs on {up.env['AGENTRUNS_HOME']} (process {up.process.pid}, http://127.0.0.1:{up.port}/)" in said


def test_a_worker_that_is_killed_is_started_again_and_said_so(up):
    pid = up.pids()["worker-1"]
    os.kill(pid, signal.SIGKILL)
    up.until_said(rf"worker-1 \(process {pid}\) was killed \(signal 9\); starting it again in [\d.]+ s")
    up.until_said(r"worker-1 is process \d+")
    assert is_alive(up.pids()["worker-1"])


def test_when_redis_is_killed_all_heals(up):
    os.kill(up.pids()["redis"], signal.SIGKILL)
    up.until_said(r"redis is process \d+")
    assert up.manage("submit", "report", "How tides work", "--wait")


def test_a_request_that_comes_while_the_web_starts_again_is_answered(up):
    os.kill(up.pids()["web"], signal.SIGKILL)
    assert answer_of(up) == 200


def test_a_second_ctrl_c_ends_work_that_does_not_drain(start, tmp_path):
    busy = start(AGENTRUNS_PLANS="tests.slow_plans")
    log = tmp_path / "bodies"
    busy.manage("submit", "deaf", "Hang", "--params", f'{{"gate": "{tmp_path}/gate", "log": "{log}"}}')
    wait_until(lambda: log.exists() and "hang" in log.read_text(), "the step hangs")
    family = busy.family()
    busy.process.send_signal(signal.SIGINT)
    busy.until_said("asked to stop; draining")
    assert busy.end(signal.SIGINT) == 0
    assert left(family) == []


def test_when_it_is_killed_its_children_end_and_the_next_one_has_its_port(start):
    killed = start()
    family, port = killed.family(), killed.port
    killed.end(signal.SIGKILL)
    again = start(port=port)
    assert "password as before" in again.said
    assert left(family) == []
    family = again.family()
    assert again.end(signal.SIGTERM) == 0
    assert left(family) == []
    again.until_said("Stopped")


def test_where_no_redis_is_installed_the_one_from_the_wheel_is_used(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    server = subprocess.Popen(embedded.command(tmp_path))
    try:
        assert server.args[0].endswith("valkey-server")
        wait_until(lambda: embedded.answers(embedded.socket_path(tmp_path)), "it answers")
    finally:
        server.terminate()
        server.wait(timeout=10)


def test_a_home_that_cannot_be_made_is_one_clear_line(tmp_path):
    (tmp_path / "file").touch()
    said = refusal(tmp_path / "file" / "home", SECRET_KEY="x" * 50)
    assert f"{tmp_path}/file/home cannot be written" in said


def test_a_taken_port_is_one_clear_line(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        said = refusal(tmp_path / "home", "--port", str(port))
    assert f"127.0.0.1:{port} cannot be used: address already in use. Choose another with --port." in said


def test_a_database_that_is_down_is_one_clear_line_without_its_password(tmp_path):
    port = free_port()
    said = refusal(tmp_path / "home", DATABASE_URL=f"postgresql://me:secret@127.0.0.1:{port}/runs")
    assert "database does not answer" in said
    assert "secret" not in said


def test_a_database_of_a_newer_version_is_left_alone(databases, tmp_path):
    url = databases.new()
    with sqlite3.connect(url.removeprefix("sqlite:///")) as database:
        database.execute("insert into django_migrations (app, name, applied) values ('agentruns', '9_later', '2030')")
    database.close()
    assert "newer schema" in refusal(tmp_path / "home", DATABASE_URL=url)
