"""What people order from a page: cancel, retry, pause, resume. GET asks and names the consequence, POST does it."""

import uuid

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.db.models import F
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from agentruns.errors import WrongState
from agentruns.models import Halt, Run
from agentruns.models.receipt import receipt
from agentruns.web import notices
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


@require_POST
def pause(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    run = get_object_or_404(seen_by(request), pk=run_id)
    try:
        stands = run.pause(by=request.user)
        messages.success(request, "Paused." if stands else "Pause asked: it stops before anything new begins.")
    except WrongState as refusal:
        messages.warning(request, str(refusal))
    return back(request, run.get_absolute_url())


@require_POST
def resume(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    run = get_object_or_404(seen_by(request), pk=run_id)
    try:
        run.resume(by=request.user)
        messages.success(request, "It goes on where it was.")
    except WrongState as refusal:
        messages.warning(request, str(refusal))
    return back(request, run.get_absolute_url())


@require_POST
@permission_required("agentruns.pause_all", raise_exception=True)
def pause_all(request: HttpRequest) -> HttpResponse:
    """The stop button."""
    Halt.begin(by=request.user)
    notices.forget()
    messages.success(request, "All new work is paused. What is at work stops at its next boundary.")
    return back(request, reverse("workers"))


@require_POST
@permission_required("agentruns.pause_all", raise_exception=True)
def resume_all(request: HttpRequest) -> HttpResponse:
    try:
        Halt.end(by=request.user)
        messages.success(request, "Work goes on.")
    except WrongState as refusal:
        messages.warning(request, str(refusal))
    notices.forget()
    return back(request, reverse("workers"))


def _question(request: HttpRequest, run: Run) -> HttpResponse:
    """A page of its own, or what goes into the dialog of the page that asked."""
    page = "cancel.html#question" if request.headers.get("HX-Request") else "cancel.html"
    kept = run.steps.filter(path=F("top")).count()
    return render(request, page, {"run": run, "paid": receipt(run), "kept": kept, "next": request.GET.get("next", "")})
