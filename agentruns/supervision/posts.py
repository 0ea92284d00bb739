"""Which children a household has, how each is started, and in which order they leave."""

import os
import sys
from pathlib import Path

from django.conf import settings

from agentruns.supervision import embedded
from agentruns.supervision.child import Post
from agentruns.supervision.home import Home

WORK, SERVE, RING = range(3)  # workers and clock use the demo model and the web's database; everybody uses Redis
# Beyond the drain: the beat that ends a horse by force, and the writing of it.
MARGIN_SECONDS = 15.0


def posts(home: Home, workers: int, listener: int) -> list[Post]:
    """Raises NoRedis."""
    grace = settings.AGENT_DRAIN_SECONDS + MARGIN_SECONDS
    found = []
    if not os.environ.get("REDIS_URL"):
        found.append(Post("redis", embedded.command(home.path), leaves=RING, grace=5, announces=False))
    found.append(Post("web", web(listener), leaves=SERVE, grace=MARGIN_SECONDS, keeps=[listener]))
    found += [Post(f"worker-{number}", manage("worker"), leaves=WORK, grace=grace) for number in range(1, workers + 1)]
    found.append(Post("clock", manage("clock"), leaves=WORK, grace=grace))
    if is_demo_ours():
        found.append(Post("demo", demo(home), leaves=SERVE, grace=5, announces=False))
    return found


def environment(home: Home, address: str) -> dict[str, str]:
    """What children find in theirs beside ours."""
    found = {"PYTHONUNBUFFERED": "1"}
    if not os.environ.get("REDIS_URL"):
        found["REDIS_URL"] = embedded.url(home.path)
    if not os.environ.get("AGENT_URL"):
        found["AGENT_URL"] = address
    if is_demo_ours():
        found["AGENT_DEMO_URL"] = f"http://127.0.0.1:{home.demo_port()}/v1"
    return found


def is_demo_ours() -> bool:
    """Unless a real model is set, or a demo that somebody else runs."""
    return bool(settings.AGENT_DEMO and not os.environ.get("AGENT_DEMO_URL"))


def manage(command: str) -> list[str]:
    script = Path(sys.argv[0]).absolute()
    start = [str(script)] if script.name == "manage.py" else ["-m", "django"]
    return [sys.executable, *start, command]


def web(listener: int) -> list[str]:
    return [
        sys.executable, "-m", "gunicorn", "--config", "python:agentruns.supervision.web",
        "--bind", f"fd://{listener}", settings.WSGI_APPLICATION.replace(".application", ":application"),
    ]  # fmt: skip


def demo(home: Home) -> list[str]:
    return [
        sys.executable, "-m", "agentruns.demo", "--port", str(home.demo_port()),
        "--state", str(home.path / "demo.sqlite3"), "--parent", str(os.getpid()),
    ]  # fmt: skip
