"""The life of one worker process: it hears rings until it is told to stop, and outlives Redis and the database."""

import importlib
import logging
import os
import signal
import sys
import time
from typing import Any

import redis
from django.db import Error as DatabaseError
from django.db import connections

from agentruns import queues
from agentruns.models import Run, Status
from agentruns.plan import plans
from agentruns.supervision import ready
from agentruns.supervision.presence import Presence

log = logging.getLogger(__name__)
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 10.0
HEALTHY_SECONDS = 60.0


def work() -> None:
    """Works until SIGTERM or SIGINT; returns after the drain. A second signal kills the horse and exits at once."""
    stop_plainly()
    presence = Presence("worker")
    pause = FIRST_PAUSE_SECONDS
    while True:
        began = time.monotonic()
        if hear(presence):
            break
        if time.monotonic() - began > HEALTHY_SECONDS:
            pause = FIRST_PAUSE_SECONDS
        log.warning("%s: hears no rings; trying again in %.1f s.", presence.name, pause)
        presence.beat()
        time.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
    presence.end()
    log.info("%s: stopped.", presence.name)


def hear(presence: Presence) -> bool:
    """One connection's worth of hearing. True: it was asked to stop; False: it ended for another reason."""
    stop_plainly()
    worker = None
    try:
        worker = queues.Worker(
            presence.name,
            preload=preload,
            born=ready.announce,
            beat=presence.beat,
            horse_died=lambda status: rescue(presence.name, status, drained=bool(worker and worker.is_stopping)),
        )
        worker.work(logging_level="WARNING")
    except redis.RedisError as error:
        log.warning("%s: Redis does not answer (%s).", presence.name, error)
    except SystemExit:
        presence.end()
        raise
    return worker is not None and worker.is_stopping


def stop_plainly() -> None:
    """Until RQ has its own handlers there is nothing to drain."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))


def preload() -> None:
    """Imports, plans and the ORM, before the first fork: a horse that imports `openai` itself takes seconds more."""
    worker = importlib.import_module("agentruns.worker")
    plans.all()
    try:
        worker.boot()
    except DatabaseError as error:
        log.warning("The database does not answer (%s).", str(error).strip())
    finally:
        connections.close_all()  # an open connection would be shared by every horse


def rescue(name: str, status: int | None, *, drained: bool) -> None:
    """A horse of ours has died: what it was at work on is due again at once, not after its lease."""
    log.warning("%s: its horse %s.", name, how_it_ended(status))
    try:
        for run in Run.objects.filter(status=Status.RUNNING, worker=name):
            if run.rescue("deploy" if drained else "crash", dead_worker=name, drained=drained):
                log.warning("Run %s: rescued in step %s.", run.pk, run.at_path)
    except DatabaseError as error:
        log.warning("%s: no rescue (%s); the clock does it when the lease is over.", name, str(error).strip())
    finally:
        connections.close_all()


def how_it_ended(status: Any) -> str:
    if status is None:
        return "is gone"
    if not os.WIFSIGNALED(status):
        return f"ended with exit code {os.WEXITSTATUS(status)}"
    number = os.WTERMSIG(status)
    guess = ", probably out of memory" if number == signal.SIGKILL else ""
    return f"was killed (signal {number}{guess})"
