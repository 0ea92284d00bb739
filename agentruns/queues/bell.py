"""The ring. Any may be lost or doubled; nothing but time is lost."""

import logging
from typing import Any

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry
from rq import Queue
from rq.exceptions import DuplicateJobError
from rq.job import Job, JobStatus
from rq.serializers import JSONSerializer

log = logging.getLogger(__name__)
NAME = "agentruns"
SLICE = "agentruns.worker.slice"
# How long a job's hash outlives a failure: it blocks the same ring meanwhile (RQ's own default is a year).
FAILURE_SECONDS = 60


def connection() -> redis.Redis:
    """Redis for rings and looks: one quick try, so that no page or commit hangs on an absent Redis."""
    return redis.Redis.from_url(
        settings.REDIS_URL, retry=Retry(NoBackoff(), 1), socket_timeout=1, socket_connect_timeout=1
    )


def queue(using: Any = None) -> Queue:
    return Queue(NAME, connection=using or connection(), serializer=JSONSerializer)


def ring(run_id: Any, fence: int) -> bool:
    """Says that there is work. False, and a line in the log, when Redis is not there: the clock's sweep rings again.

    The job's id carries the run and its fence, so that one claim is rung for once, however many ring.
    """
    try:
        with connection() as using:
            _enqueue(queue(using), str(run_id), f"r{run_id}-{fence}")
    except redis.RedisError as error:
        log.warning("Redis did not take the ring for run %s (%s); the clock rings again.", run_id, error)
        return False
    return True


def _enqueue(bell: Queue, run_id: str, job_id: str) -> None:
    try:
        bell.enqueue_call(SLICE, args=(run_id,), job_id=job_id, unique=True, result_ttl=0, failure_ttl=FAILURE_SECONDS)
    except DuplicateJobError:
        if _is_stale(bell, job_id):
            Job.fetch(job_id, connection=bell.connection, serializer=JSONSerializer).delete()
            bell.enqueue_call(SLICE, args=(run_id,), job_id=job_id, result_ttl=0, failure_ttl=FAILURE_SECONDS)


def _is_stale(bell: Queue, job_id: str) -> bool:
    """A leftover hash that no worker will ever come for: queued but not in the list, or ended."""
    job = Job.fetch(job_id, connection=bell.connection, serializer=JSONSerializer)
    status = job.get_status()
    if status == JobStatus.QUEUED:
        return job_id not in bell.get_job_ids()
    return status in {JobStatus.FINISHED, JobStatus.FAILED, JobStatus.STOPPED, JobStatus.CANCELED}


def depth() -> int | None:
    """Rings not answered yet; None when Redis is not there."""
    try:
        with connection() as using:
            return int(queue(using).count)
    except redis.RedisError:
        return None
