"""The banners of every page: what keeps all runs from moving, and what to do about it."""

import hashlib
import time
from typing import NamedTuple

import redis
from django.db.models import F
from django.utils import timezone

from agentruns.models import Halt, Process, Provider, Run, Status
from agentruns.models.moment import in_seconds
from agentruns.queues.bell import connection
from agentruns.web.words import visible

# Each web process looks this often (seconds) at most: banners are on every page and in every poll.
LOOK_SECONDS = 5.0
# A run that was rung for just now is no sign of missing workers.
PATIENCE_SECONDS = 10


class Notice(NamedTuple):
    name: str
    tone: str
    lead: str
    rest: str


_seen: tuple[float, list[Notice]] = (float("-inf"), [])


def current() -> list[Notice]:
    """The notices of now, at most LOOK_SECONDS old."""
    global _seen
    looked, found = _seen
    if time.monotonic() - looked < LOOK_SECONDS:
        return found
    found = [notice for notice in (_halted(), _no_worker(), _no_redis(), _stopped_provider()) if notice]
    _seen = (time.monotonic(), found)
    return found


def forget() -> None:
    """Looks anew at the next page: for tests, which change the world faster than it turns."""
    global _seen
    _seen = (float("-inf"), [])


def digest() -> str:
    """A word that changes with the notices; part of every region's tag."""
    return hashlib.sha256(repr(current()).encode()).hexdigest()[:6]


def redis_trouble() -> str:
    """Why Redis does not answer, or nothing."""
    try:
        with connection() as using:
            using.ping()
    except redis.RedisError as error:
        return str(error) or type(error).__name__
    return ""


def _halted() -> Notice | None:
    halt = Halt.current()
    if halt is None:
        return None
    by = f" by {visible(halt.by.get_username())}" if halt.by else ""
    since = timezone.localtime(halt.at).strftime("%H:%M")
    return Notice(
        "halted", "wait", f"All work is paused{by} since {since}.", "Nothing new begins. Resume it on the workers page."
    )


def _no_worker() -> Notice | None:
    if Process.living("worker").exists():
        return None
    overdue = Run.objects.filter(status=Status.QUEUED, enqueued_at__lt=in_seconds(-PATIENCE_SECONDS))
    if not overdue.exists():
        return None
    return Notice(
        "no-worker", "wait", "No worker is running.", "Runs wait, nothing is lost. Start one with: manage.py worker",
    )  # fmt: skip


def _no_redis() -> Notice | None:
    if not redis_trouble():
        return None
    return Notice(
        "no-redis", "wait", "Redis does not answer.",
        "New runs are kept and start when it is back. Check REDIS_URL, or start Redis.",
    )  # fmt: skip


def _stopped_provider() -> Notice | None:
    stopped = Provider.objects.filter(stopped_at__isnull=False).order_by(F("stopped_at").desc()).first()
    if stopped is None:
        return None
    return Notice("provider", "wait", f"The provider {stopped.base_url} is stopped.", visible(stopped.reason))
