"""The pages for what went wrong: 400, 403, 404, 500, in the look of the others."""

import logging
import sys
import uuid
from typing import Any

from django.db import InterfaceError, OperationalError, ProgrammingError
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from agentruns.web.guard import away, database_trouble, unavailable
from agentruns.web.theme import chosen

log = logging.getLogger(__name__)


def bad_request(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    remedy = "Go back: your browser kept what you typed. If it was a very long text, shorten it."
    return _page(request, 400, "This request could not be read", remedy)


def denied(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    return _page(request, 403, "You may not do this", "Ask someone who may, or sign in with another account.")


def missing(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    return _page(request, 404, "There is nothing here", "The address is wrong, or what it names is not yours to see.")


def broken(request: HttpRequest) -> HttpResponse:
    """500 with an id that is in the log; or 503, when it was the database that failed us in the middle."""
    error = sys.exc_info()[1]
    if isinstance(error, (OperationalError, InterfaceError, ProgrammingError)):
        return unavailable(request, database_trouble(fresh=True) or away(error))
    number = uuid.uuid4().hex[:12]
    log.error("Error %s at %s", number, request.path, exc_info=error)
    remedy = f"It is our fault, and it is in the log as {number}. No run is touched by it."
    return _page(request, 500, "Something went wrong here", remedy)


def _page(request: HttpRequest, status: int, title: str, remedy: str) -> HttpResponse:
    """Rendered without the request, so that no session or database is needed to say what is wrong."""
    context: dict[str, Any] = {"status": status, "title": title, "remedy": remedy, "theme": chosen(request)}
    return HttpResponse(render_to_string("trouble.html", context), status=status)
