"""RQ's worker, made for durable runs: it drains, tells at once of a horse that died, and outlives an absent Redis."""

import contextlib
import functools
import gc
import logging
import os
import signal
from collections.abc import Callable
from typing import Any

import redis
from django.conf import settings
from redis.backoff import ExponentialBackoff
from redis.retry import Retry
from rq import Worker as RQWorker
from rq.job import Job
from rq.serializers import JSONSerializer

from agentruns.queues import horse
from agentruns.queues.bell import NAME, SLICE

log = logging.getLogger(__name__)
# RQ waits for a ring 15 s shorter than this (so 5 s at a time): as often, an idle worker beats.
WORKER_SECONDS = 20
# The parent of a busy horse looks up, and beats, as often.
LOOK_SECONDS = 5


class Slice(Job):
    """A ring as a job. Whoever can write to Redis may name any function there; only ours is called."""

    def restore(self, raw_data: Any) -> Any:
        restored = super().restore(raw_data)
        self._success_callback_name = self._failure_callback_name = self._stopped_callback_name = None
        self.webhooks = []
        return restored

    @property
    def func(self) -> Any:
        if self.func_name != SLICE or self.instance is not None:
            raise ValueError(f"job {self.id} asks for {self.func_name!r}; this worker answers rings, nothing else")
        return super().func


def unless_redis_is_away(method: Callable[..., Any]) -> Callable[..., Any]:
    """RQ's bookkeeping, which we never read: when Redis is away it is left undone, and the work goes on.

    Plain RQ leaves its loop on the first of these that fails, with a horse still at work.
    """

    @functools.wraps(method)
    def tolerant(self: "Worker", *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except redis.RedisError as error:
            log.debug("%s: %s left undone: %s", self.process_name, method.__name__, error)
            return None

    return tolerant


class Worker(RQWorker):
    """Hears rings on our one queue and forks a horse for each.

    `name` is its Process row's. `preload` runs before the first fork, `born` when rings are heard, `beat` about
    every 5 s, and `horse_died` with the wait status (None: not known) of a horse that did not end by itself.

    One thread only: a fork beside a second one may copy a lock, SQLite's or OpenSSL's, that nobody will ever release.
    """

    job_class = Slice
    max_connection_wait_time = 1.0  # RQ doubles its pause up to a minute, and the next ring waits for it

    def __init__(
        self,
        name: str,
        *,
        preload: Callable[[], None],
        born: Callable[[], None],
        beat: Callable[[], None],
        horse_died: Callable[[int | None], None],
    ) -> None:
        self.process_name = name
        self._preload, self._born, self._beat, self._horse_died = preload, born, beat, horse_died
        connection = redis.Redis.from_url(
            settings.REDIS_URL, retry=Retry(ExponentialBackoff(cap=0.5, base=0.05), 2), socket_connect_timeout=2
        )
        # RQ's own name is left random: one that is used twice is refused after a crash.
        super().__init__(
            [NAME], connection=connection, serializer=JSONSerializer, worker_ttl=WORKER_SECONDS,
            job_monitoring_interval=LOOK_SECONDS, log_job_description=False,
        )  # fmt: skip

    @property
    def is_stopping(self) -> bool:
        return self._shutdown_requested_date is not None

    def bootstrap(self, *args: Any, **kwargs: Any) -> None:
        self._preload()
        horse.belongs_to(self.process_name)
        gc.collect()
        gc.freeze()  # what horses share with us stays shared: no collection writes to it
        self._beat()
        super().bootstrap(*args, **kwargs)
        self._born()

    # --- a horse's life -------------------------------------------------------------------------------------------

    def fork_work_horse(self, job: Any, queue: Any) -> None:
        """Stop signals are held back around the fork: in the child, until it has its own handlers; here, until the
        horse is known, so that the drain reaches it."""
        signal.pthread_sigmask(signal.SIG_BLOCK, horse.STOPPING)
        try:
            super().fork_work_horse(job, queue)
            with contextlib.suppress(OSError):  # it was quicker, or is gone: RQ kills by group, which must not be ours
                os.setpgid(self.horse_pid, self.horse_pid)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, horse.STOPPING)

    def setup_work_horse_signals(self) -> None:
        horse.saddle(self.pid or 0, drained=self._stop_requested)

    def handle_warm_shutdown_request(self) -> None:
        log.info("%s: asked to stop; %s", self.process_name, "draining" if self.horse_pid else "idle")
        if self.horse_pid:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(self.horse_pid, signal.SIGTERM)

    def wait_for_horse(self) -> tuple[int | None, int | None, Any]:
        pid, status, usage = super().wait_for_horse()
        signal.alarm(0)  # RQ's own for this wait: the rescue must not be cut short by it
        if status != os.EX_OK:
            self._horse_died(status)
        return pid, status, usage

    def monitor_work_horse(self, job: Any, queue: Any, execution: Any) -> None:
        while True:
            try:
                return super().monitor_work_horse(job, queue, execution)
            except redis.RedisError as error:
                log.warning("%s: Redis is away (%s).", self.process_name, error)
                if not self.horse_pid:
                    return None

    def execute_job(self, job: Any, queue: Any) -> None:
        try:
            super().execute_job(job, queue)
        except redis.RedisError as error:
            log.warning("%s: Redis went away with a ring (%s); the clock rings again.", self.process_name, error)

    # --- RQ's bookkeeping in Redis --------------------------------------------------------------------------------

    def heartbeat(self, *args: Any, **kwargs: Any) -> None:
        if not self.is_horse:
            self._beat()
        self._heartbeat(*args, **kwargs)

    @unless_redis_is_away
    def _heartbeat(self, *args: Any, **kwargs: Any) -> None:
        super().heartbeat(*args, **kwargs)

    @unless_redis_is_away
    def maintain_heartbeats(self, *args: Any, **kwargs: Any) -> None:
        super().maintain_heartbeats(*args, **kwargs)

    @unless_redis_is_away
    def set_state(self, state: str, pipeline: Any = None) -> None:
        super().set_state(state, pipeline)

    @unless_redis_is_away
    def set_shutdown_requested_date(self) -> None:
        super().set_shutdown_requested_date()

    @unless_redis_is_away
    def run_maintenance_tasks(self) -> None:
        super().run_maintenance_tasks()

    @unless_redis_is_away
    def register_death(self) -> None:
        super().register_death()

    def check_for_suspension(self, burst: bool) -> None:
        """Pausing goes through the database; RQ's own switch in Redis is not ours."""

    def subscribe(self) -> None:
        """No orders through Redis, and so no second thread: stop and cancel go through the database."""
