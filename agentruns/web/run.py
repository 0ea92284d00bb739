"""`/runs/<id>/`: one run, live; and a step's output as a file."""

import uuid
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from agentruns.models import Run, Step
from agentruns.web import live
from agentruns.web.output import as_text
from agentruns.web.sheet import View, sheet
from agentruns.web.why import is_silent


@require_safe
def run(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    found = get_object_or_404(seen_by(request), pk=run_id)
    return render(request, "run.html", _context(request, found))


@live.fragment
@require_safe
def run_live(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """The live region as it is now; 304 while nothing of the run has changed."""
    seen = seen_by(request).filter(pk=run_id).only("pk", "version", "status", "lease_expires_at").first()
    if seen is None:
        return live.gone(request)
    return live.answer(request, _tag(request, seen), lambda: _draw(request, run_id))


@require_safe
def run_output(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """A step's whole output as a text file: saved, never shown as a page of ours."""
    found = get_object_or_404(seen_by(request), pk=run_id)
    step = Step.at(found, request.GET.get("step", "")).select_related("body").first()
    if step is None:
        raise Http404
    name = f"{found.short_id}-{step.path.replace('/', '-').replace(':', '-')}.txt"
    response = HttpResponse(as_text(step.value()), content_type="text/plain; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["Content-Security-Policy"] = "sandbox; default-src 'none'"
    return response


def seen_by(request: HttpRequest) -> Any:
    """The runs that this person may see; somebody else's is not there at all."""
    return Run.objects.visible_to(request.user)


def _draw(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    return render(request, "run.html#live", _context(request, seen_by(request).get(pk=run_id)))


def _context(request: HttpRequest, found: Run) -> dict[str, Any]:
    view, url = View.asked_by(request), found.get_absolute_url()
    return {
        "run": found,
        "sheet": sheet(found, view),
        "view": view,
        "tag": _tag(request, found),
        "here": url + view.query(),
        "as_page": url + view.query(text=False),
        "as_text": url + view.query(text=True),
        "all_events": url + view.query(events=True),
        "true_axis": url + view.query(real=True),
        "shrunk_axis": url + view.query(real=False),
    }


def _tag(request: HttpRequest, found: Run) -> str:
    """Its version; and what changes without one: its worker falling silent."""
    return live.tag(request, found.pk.hex[:8], found.version, int(is_silent(found)))
