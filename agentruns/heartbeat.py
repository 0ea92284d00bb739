"""The living claim: a thread that renews the lease, and the one place that says whether new work may begin now."""

import ctypes
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connection
from django.utils import timezone

from agentruns import crash, queues
from agentruns.entry import Entry
from agentruns.errors import (
    CancelAsked,
    DeadlinePassed,
    Draining,
    Interruption,
    LeaseLost,
    PauseAsked,
    SliceOver,
    StepTimeout,
)
from agentruns.models import Run
from agentruns.persist import leave_connection

log = logging.getLogger(__name__)
# Between the exception in a function that must end, and the end of its process.
GRACE_SECONDS = 10.0


class Heartbeat(threading.Thread):
    """Renews the lease of `run` a quarter of it apart, on a connection of its own; ends what overran.

    Authority is local: new work begins only before the last successful beat's sending + lease - 5 s.
    """

    def __init__(self, run: Run, claimed_at: float, slice_ends: float, force_end: Callable[[str], None]) -> None:
        """`claimed_at`: monotonic time before the claim was sent; its lease cannot have begun earlier."""
        super().__init__(daemon=True, name=f"heartbeat-{run.pk}")
        self.run_row, self.slice_ends, self.force_end = run, slice_ends, force_end
        self.lease = float(settings.AGENT_LEASE_SECONDS)
        self.margin = min(5.0, self.lease / 4)
        self.good_until = claimed_at + self.lease - self.margin
        self.lost: LeaseLost | None = None
        self.ordered = "cancel" if run.cancel_requested_at is not None else ""
        self.over = threading.Event()
        self.stirred = threading.Event()
        self._worker = threading.get_ident()
        self._guard = threading.Lock()
        self._entry: Entry | None = None
        self._entry_ends = 0.0
        self._overran_at: float | None = None
        self._raised = False
        self.moved = False

    # --- what the engine asks -----------------------------------------------------------------------------------

    def boundary(self) -> None:
        """Raises the Interruption that forbids new work: lease, cancel, pause, time limit, drain, end of the slice."""
        self.living()
        if self.ordered == "cancel":
            raise CancelAsked("a cancel was asked for")
        if self.ordered == "pause":
            raise PauseAsked("a person paused it")
        deadline = self.run_row.deadline_at
        if deadline is not None and timezone.now() > deadline:
            raise DeadlinePassed("The run's time limit is over. Retry it to give it as much time again.")
        if queues.draining():
            crash.point("draining")
            raise Draining("this worker is stopping")
        if self.moved and monotonic() > self.slice_ends:
            raise SliceOver("the slice is over")

    def living(self) -> None:
        if self.lost is not None:
            raise self.lost
        if monotonic() > self.good_until:
            raise LeaseLost(f"no heartbeat of run {self.run_row.pk} came through in time")

    def renewed(self, sent_at: float) -> None:
        self.good_until = max(self.good_until, sent_at + self.lease - self.margin)
        self.moved = True

    def pause(self, seconds: float) -> None:
        self.stirred.wait(seconds)

    @contextmanager
    def limited(self, entry: Entry, timeout: float) -> Iterator[None]:
        """Around the author's function: at `timeout` seconds ctx closes and StepTimeout is raised in it."""
        self._entry_ends, self._overran_at, self._raised = monotonic() + timeout, None, False
        self._entry = entry
        try:
            yield
        finally:
            self._entry = None  # from here on nothing is raised; what was being raised just now has been, after this:
            with self._guard:
                pass
            # An exception that was set but not yet delivered must not hit the engine's own writes.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._worker), None)
            if self._raised:  # anywhere in the function, perhaps in the middle of its use of our connection
                leave_connection()

    # --- the thread ---------------------------------------------------------------------------------------------

    def run(self) -> None:
        next_beat = monotonic() + self.lease / 4
        try:
            while not self.over.wait(0.25):
                if monotonic() >= next_beat:
                    self.beat()
                    next_beat = monotonic() + self.lease / 4
                self.enforce()
        finally:
            connection.close()

    def beat(self) -> None:
        sent_at = monotonic()
        try:
            self._patient_connection()
            self.ordered = self.run_row.renew(self.lease)
            crash.point("heartbeat")
        except LeaseLost as lost:
            self.lost = lost
        except DatabaseError as error:
            log.warning("Run %s: a heartbeat failed (%s); no new work after %.0f s.", self.run_row.pk, error,
                        max(self.good_until - monotonic(), 0))  # fmt: skip
            connection.close()
            return
        else:
            self.good_until = max(self.good_until, sent_at + self.lease - self.margin)
        if self.ordered or self.lost:
            self.stirred.set()

    def _patient_connection(self) -> None:
        """A beat that waits behind a lock for half a minute is worse than one that fails and is repeated."""
        if connection.connection is None:
            connection.ensure_connection()
            with connection.cursor() as cursor:
                sql = "SET lock_timeout = '3s'" if connection.vendor == "postgresql" else "PRAGMA busy_timeout = 3000"
                cursor.execute(sql)

    def enforce(self) -> None:
        """What must end now: first by an exception in the function, then, when it does not listen, with the process."""
        why = self._must_end()
        entry = self._entry
        if why is None or entry is None:
            return
        if self._overran_at is None:
            self._overran_at = monotonic()
            entry.closed = entry.closed or why
        if not self._raised and not entry.inside:
            with self._guard:
                if self._entry is entry:
                    self._raised = True
                    thread, kind = ctypes.c_ulong(self._worker), ctypes.py_object(type(why))
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, kind)
        if monotonic() - self._overran_at > GRACE_SECONDS:
            self.die(str(why), "timeout" if isinstance(why, StepTimeout) else "lease")

    def _must_end(self) -> Interruption | None:
        if (since := queues.draining_since()) is not None:
            self.stirred.set()
            if monotonic() - since > settings.AGENT_DRAIN_SECONDS:
                self.die("the drain's time was over", "deploy")
        if self.lost is not None:
            return self.lost
        if self._entry is not None and monotonic() > self._entry_ends:
            return StepTimeout("the step ran longer than its timeout")
        return None

    def die(self, reason: str, cause: str) -> None:
        """The forced end: streams are closed, the attempt is booked, the run released, and the process is over."""
        log.warning("Run %s: ended by force (%s).", self.run_row.pk, reason)
        try:
            self.force_end(cause)
        except (DatabaseError, Interruption) as error:
            log.warning("Run %s: the forced end was not written (%s); the rescue does it.", self.run_row.pk, error)
        finally:
            os._exit(0)
