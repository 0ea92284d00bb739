"""What RQ enters: claim a run, keep its lease alive, walk its plan; then the next, while the slice lasts."""

import logging
from time import monotonic

from django.conf import settings
from django.db import connection, transaction

from agentruns import crash, llm, queues
from agentruns.engine import Walk
from agentruns.errors import StepTimeout
from agentruns.execution import interrupted
from agentruns.heartbeat import Heartbeat
from agentruns.models import Call, Process, Run, Status, Wait
from agentruns.models.ledger import lose
from agentruns.models.moment import now
from agentruns.outcome import Outcome
from agentruns.plan import plans

log = logging.getLogger(__name__)


def slice(run_id: str) -> None:
    """Answers a ring. `run_id` is a hint: the fairest due run is claimed, whichever was rung for.

    A slice is a time, not a run: so memory starts fresh, and RQ's job timeout bounds it.
    """
    ends = monotonic() + settings.AGENT_SLICE_SECONDS
    try:
        newer = Process.builds_newer_than(queues.process_name())
        while not queues.draining():
            claimed_at = monotonic()
            run = Run.claim(worker=queues.process_name(), lease=settings.AGENT_LEASE_SECONDS, newer_builds=newer)
            if run is None:
                return
            crash.point("claimed")
            log.info("Run %s: claimed, fence %s, step %s.", run.pk, run.fence, run.at_path)
            log.info("Run %s: %s.", run.pk, work(run, claimed_at, ends))
            if monotonic() >= ends:
                return
    finally:
        connection.close()


def work(run: Run, claimed_at: float, slice_ends: float) -> str:
    """Takes a run, claimed at that monotonic time, as far as it goes; returns how that ended."""
    walk: Walk

    def force_end(cause: str) -> None:
        end_by_force(walk, cause)

    heart = Heartbeat(run, claimed_at, slice_ends, force_end)
    walk = Walk(run, heart)
    heart.start()
    try:
        return walk.walk()
    finally:
        heart.over.set()
        heart.join(timeout=5)


def end_by_force(walk: Walk, cause: str) -> None:
    """From the heartbeat's thread, when the function did not end: open streams are unknown, the run is given back."""
    entry = walk.entry
    llm.provider().close_streams()
    if entry is None:
        walk.run.release(cause=cause)
        return
    # Of this entry: by now another worker may hold the run, with calls of its own.
    for call in Call.objects.filter(run=walk.run, top=entry.path, attempt=entry.number, state="intent"):
        lose(call, f"the worker ended ({cause}) before the answer came")
    if cause == "timeout":
        walk.end(interrupted(entry, StepTimeout(f"step {entry.path} ran over {entry.step.timeout:g} s")))
    else:
        walk.end(Outcome("released", cause=cause))


def boot() -> None:
    """Said by each worker before its first run: what waited for code goes on, where its plan and next step are here.

    It may still wait for more; then it parks again. Raises django.db.Error when the database does not answer.
    """
    missing = Wait.objects.filter(kind="code", closed_at=None)
    for run in Run.objects.filter(status=Status.WAITING, pk__in=missing.values("run")):
        plan = plans.all().get(run.plan)
        if plan is None or not (run.at_path == "" or plan.knows(run.at_path)):
            continue
        with transaction.atomic():
            missing.filter(run=run).update(closed_at=now())
            if run.wake():
                log.info("Run %s: its plan %s is there again.", run.pk, run.plan)
