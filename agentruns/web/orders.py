"""What people order from a run's page: cancel and retry. GET asks and names the consequence, POST does it."""

import uuid

from django.contrib import messages
from django.db.models import F
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_http_methods, require_POST

from agentruns.errors import WrongState
from agentruns.models import Run
from agentruns.models.receipt import receipt
from agentruns.web.redirect import back
from agentruns.web.run import seen_by


@require_http_methods(["GET", "HEAD", "POST"])
def cancel(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    run = get_object_or_404(seen_by(request), pk=run_id)
    if request.method != "POST":
        return _question(request, run)
    try:
        ended = run.cancel(by=request.user)
        messages.success(request, "Cancelled." if ended else "Cancel asked: it stops before anything new begins.")
    except WrongState as refusal:
        messages.warning(request, str(refusal))
    return back(request, run.get_absolute_url())


@require_POST
def retry(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    run = get_object_or_404(seen_by(request), pk=run_id)
    try:
        run.retry(by=request.user)
        messages.success(request, "It goes on from its finished steps; they are not run or paid again.")
    except WrongState as refusal:
        messages.warning(request, str(refusal))
    return back(request, run.get_absolute_url())


def _question(request: HttpRequest, run: Run) -> HttpResponse:
    """A page of its own, or what goes into the dialog of the page that asked."""
    page = "cancel.html#question" if request.headers.get("HX-Request") else "cancel.html"
    kept = run.steps.filter(path=F("top")).count()
    return render(request, page, {"run": run, "paid": receipt(run), "kept": kept, "next": request.GET.get("next", "")})
