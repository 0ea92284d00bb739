"""`/workers/`: the processes that are alive, what each is doing, what waits for them, and what was cut off lately."""

from typing import Any

from django.db.models import Min
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from agentruns.models import Attempt, Halt, Process, Run, Status
from agentruns.models.moment import in_seconds
from agentruns.models.process import SILENT_SECONDS
from agentruns.web import live, notices
from agentruns.web.events import cause

# Processes that were last seen within this time (seconds) are listed, the dead ones too.
RECENT_SECONDS = 600
INTERRUPTIONS = 10


@require_safe
def workers(request: HttpRequest) -> HttpResponse:
    return render(request, "workers.html", _context(request))


@live.fragment
@require_safe
def workers_live(request: HttpRequest) -> HttpResponse:
    """Always drawn anew: heartbeats are what the page is about."""
    return render(request, "workers.html#live", _context(request))


def _context(request: HttpRequest) -> dict[str, Any]:
    queue = Run.objects.filter(status=Status.QUEUED)
    return {
        "processes": _processes(request),
        "halt": Halt.current(),
        "queued": queue.count(),
        "oldest": queue.aggregate(at=Min("enqueued_at"))["at"],
        "running": Run.objects.filter(status=Status.RUNNING).count(),
        "redis": notices.redis_trouble(),
        "interruptions": [(attempt, cause(attempt.cause)) for attempt in _interruptions(request)],
    }


def _processes(request: HttpRequest) -> list[dict[str, Any]]:
    """Everyone sees which processes there are; which run one holds, only those who may see the run."""
    holding = Run.objects.visible_to(request.user).filter(status=Status.RUNNING).defer("task", "params")
    held = {run.worker: run for run in holding}
    recent = Process.objects.filter(seen_at__gt=in_seconds(-RECENT_SECONDS)).order_by("kind", "-started_at")
    alive = set(
        Process.objects.filter(stopped_at=None, seen_at__gt=in_seconds(-SILENT_SECONDS)).values_list("pk", flat=True)
    )
    return [{"row": row, "is_alive": row.pk in alive, "run": held.get(row.pk)} for row in recent]


def _interruptions(request: HttpRequest) -> list[Attempt]:
    found = Attempt.objects.filter(outcome="interrupted", run__in=Run.objects.visible_to(request.user))
    lasting = found.exclude(cause="cancel").select_related("run").defer("run__task", "run__params", "traceback")
    return list(lasting.order_by("-ended_at")[:INTERRUPTIONS])
