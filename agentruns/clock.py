"""The clock: wakes, rescues, polls, sweeps; once a second. It holds no truth: any number of them may run, or die."""

import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable
from time import monotonic

import psutil
from django.db import Error as DatabaseError
from django.db import connection
from django.db.models import Q

from agentruns import build, queues
from agentruns.adoption import adopt_announced
from agentruns.models import Halt, Process, Run, Status
from agentruns.models.moment import in_seconds, now
from agentruns.notifying import send_due
from agentruns.polling import cancel_orphans, lose_orphans, poll_calls

log = logging.getLogger(__name__)

TICK_SECONDS = 1.0
BEAT_SECONDS = 5.0
SWEEP_SECONDS = 2.0  # a ring that nobody answered for so long is rung again
SWEPT_AT_ONCE = 100
OBEY_SECONDS = 30.0  # for a cancel; then it is done by force


def run(stop: threading.Event) -> None:
    """Ticks until `stop` is set. What talks to providers, and what tells people, has its own thread: one that hangs
    must not keep dead workers' runs from being given back."""
    clock = Clock(f"clock-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}")
    for name, rounds in (("listening", clock.listen), ("telling", clock.send)):
        threading.Thread(target=repeat, args=(stop, rounds), name=name, daemon=True).start()
    repeat(stop, clock.tick)
    clock.end()


def repeat(stop: threading.Event, tick: Callable[[], None]) -> None:
    """A database that is away is waited for, longer each time, up to 10 s."""
    pause = TICK_SECONDS
    while not stop.wait(pause):
        try:
            tick()
            pause = TICK_SECONDS
        except DatabaseError as error:
            connection.close()
            pause = min(pause * 2, 10)
            log.warning("The database is away (%s); next look in %.0f s.", str(error).strip(), pause)
    connection.close()


def rescue_expired() -> None:
    """Runs whose lease ran out are due again: their worker, or its host, is gone."""
    for row in Run.objects.filter(status=Status.RUNNING, lease_expires_at__lte=now())[:SWEPT_AT_ONCE]:
        if row.rescue("lease"):
            log.warning("Run %s: its worker %s is gone; given back.", row.pk, row.worker)


def end_unruly() -> None:
    """Runs that were asked to stop, and whose step does not listen."""
    late = Run.objects.filter(status=Status.RUNNING, cancel_requested_at__lte=in_seconds(-OBEY_SECONDS))
    for row in late[:SWEPT_AT_ONCE]:
        row.end_by_force()


def sweep() -> None:
    """Rings for due runs that nobody came for: the ring was lost, or Redis was away."""
    unanswered = Run.objects.filter(~Halt.is_on(), status=Status.QUEUED, paused_at=None).filter(
        Q(enqueued_at=None) | Q(enqueued_at__lte=in_seconds(-SWEEP_SECONDS))
    )
    rows = list(unanswered.order_by("-priority", "created_at").values_list("pk", "fence")[:SWEPT_AT_ONCE])
    if not rows or (queues.depth() or 0) >= len(rows):
        return
    for pk, fence in rows:
        if not queues.ring(pk, fence):
            return
        Run.objects.filter(pk=pk, status=Status.QUEUED).update(enqueued_at=now())


class Clock:
    """Its chores, each of which may be done by any number of clocks at once."""

    TICKED = (Run.wake_due, Run.wake_for_slots, Run.wake_priced, rescue_expired, end_unruly, lose_orphans, sweep)
    LISTENED = (cancel_orphans, adopt_announced, poll_calls)
    TOLD = (send_due,)

    def __init__(self, name: str) -> None:
        self.name = name
        self.beaten_at: float | None = None

    def tick(self) -> None:
        """One round of the chores in the database; one that fails does not keep the others from being done."""
        self.beat()
        for chore in self.TICKED:
            self.do(chore)

    def listen(self) -> None:
        """One round of those at providers."""
        for chore in self.LISTENED:
            self.do(chore)

    def send(self) -> None:
        """One round of what people are told."""
        for chore in self.TOLD:
            self.do(chore)

    def do_chores(self) -> None:
        """All of them, once."""
        for chore in (*self.TICKED, *self.LISTENED, *self.TOLD):
            self.do(chore)

    def do(self, chore: Callable[[], object]) -> None:
        try:
            chore()
        except DatabaseError:
            raise
        except Exception:
            log.exception("The clock's %s failed; the next tick tries again.", chore.__name__)

    def beat(self) -> None:
        if self.beaten_at is None:
            Process.born(self.name, "clock", socket.gethostname(), os.getpid(), build.current())
        elif monotonic() - self.beaten_at < BEAT_SECONDS:
            return
        else:
            Process.beat(self.name, psutil.Process().memory_info().rss)
        self.beaten_at = monotonic()

    def end(self) -> None:
        try:
            Process.ended(self.name)
        except DatabaseError as error:
            log.warning("The clock's end was not written: %s", error)
        connection.close()
