"""What an idle `up` takes: every process of it, Redis and the demo model included."""

import os
import subprocess
import sys
import tempfile
import time

import psutil

from tests.machine import free_port
from tests.system import ROOT

SETTLED_SECONDS = 10.0


def report() -> None:
    with tempfile.TemporaryDirectory(prefix="agentruns-benchmark-") as home:
        command = [sys.executable, "manage.py", "up", "--port", str(free_port())]
        up = subprocess.Popen(
            command, cwd=ROOT, env={**environment(), "AGENTRUNS_HOME": home}, stdout=subprocess.PIPE, text=True
        )
        try:
            seconds = ready_after(up)
            time.sleep(SETTLED_SECONDS)
            processes = [psutil.Process(up.pid), *psutil.Process(up.pid).children(recursive=True)]
            sizes = [process.memory_full_info() for process in processes]
        finally:
            up.terminate()
            up.wait(60)
    rss, pss = (sum(getattr(size, kind) for size in sizes) / 2**20 for kind in ("rss", "pss"))
    print(f"up ready after {seconds:.1f} s; idle: {len(sizes)} processes, RSS {rss:.0f} MB, PSS {pss:.0f} MB together")


def environment() -> dict[str, str]:
    ours = ("AGENT", "OPENAI", "DATABASE_URL", "REDIS_URL")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def ready_after(up: "subprocess.Popen[str]") -> float:
    began = time.monotonic()
    assert up.stdout is not None
    for line in up.stdout:
        if "Ready in" in line:
            return time.monotonic() - began
    raise AssertionError("up ended before it was ready")
