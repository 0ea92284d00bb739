"""Why a run is not moving, in one sentence, with what would make it move. Nothing hangs silently."""

from typing import NamedTuple

from django.utils import timezone

from agentruns.models import Halt, Process, Run, Status
from agentruns.models.step_lines import WAITS_FOR, title_of
from agentruns.web.words import NEEDS_A_PERSON, between, full_stop, last_line, visible


class Why(NamedTuple):
    """`until`: when it goes on by itself, if that is known."""

    tone: str
    lead: str
    rest: str
    until: object = None


def why(run: Run) -> Why | None:
    """The reason, or None for a run that moves or has ended well."""
    if run.is_ended:
        return _ended(run)
    if run.cancel_requested_at:
        return Why("wait", "It is being cancelled.", "It stops before anything new begins; 30 s later by force.")
    if run.paused_at:
        return _paused(run)
    if run.status == Status.QUEUED:
        return _queued(run)
    return _waiting(run) if run.status == Status.WAITING else _running(run)


def _ended(run: Run) -> Why | None:
    if run.status != Status.FAILED:
        return None
    where = f" in {title_of(run.at_path)}" if run.at_path else ""
    rest = f"{full_stop(last_line(run.reason))} Retry goes on from its finished steps; they are not paid again."
    return Why("bad", f"It failed{visible(where)}.", rest)


def _paused(run: Run) -> Why:
    if run.status == Status.RUNNING:
        return Why("wait", "It is being paused.", "It stops before anything new begins.")
    return Why("wait", "It is paused.", "Nothing is lost. Resume it to go on.")


def _queued(run: Run) -> Why | None:
    if Halt.current():
        return Why("wait", "All work is paused.", "It goes on when somebody resumes work, on the workers page.")
    if not Process.living("worker").exists():
        return Why("wait", "No worker is running.", "It waits, nothing is lost. Start one with: manage.py worker")
    others = Run.objects.filter(status=Status.QUEUED, priority__gte=run.priority).exclude(pk=run.pk)
    ahead = others.filter(created_at__lt=run.created_at).count()
    if ahead:
        return Why("idle", "It waits for a worker.", f"{ahead} before it." if ahead > 1 else "One run is before it.")
    return Why("idle", "It is next.", "A worker takes it up within seconds.")


def _running(run: Run) -> Why | None:
    if not is_silent(run):
        return None
    ago = between(run.lease_expires_at) if run.lease_expires_at else "a while"
    return Why("wait", "Its worker has fallen silent.", f"Its claim ended {ago} ago; another takes it up where it was.")


def is_silent(run: Run) -> bool:
    """Whether the worker that holds it has let its lease run out."""
    lease = run.lease_expires_at
    return run.status == Status.RUNNING and lease is not None and lease < timezone.now()


def _waiting(run: Run) -> Why:
    kind = run.waiting_for
    reason = visible(run.reason or "")
    if kind == "model" and run.wake_at and reason:
        return Why("idle", "It waits.", reason, run.wake_at)
    if kind == "model":
        return Why("run", "The model is at work on it.", "No process waits for it, so no restart loses anything.")
    if kind in NEEDS_A_PERSON:
        return Why("wait", f"It needs {WAITS_FOR[kind]}.", reason or REMEDIES.get(kind, ""), run.wake_at)
    if kind == "retry":
        return Why("wait", f"{title_of(run.at_path)} is tried again.", last_line(reason), run.wake_at)
    return Why("idle", f"It waits for {WAITS_FOR.get(kind, 'its turn')}.", reason, run.wake_at)


REMEDIES = {
    "operator": "Look at the last events, then retry or cancel it.",
    "budget": "Raise its budget to go on.",
    "price": "Set AGENT_PRICE, or add a Price in the admin.",
    "provider": "Mend what the provider says, then retry it.",
}
