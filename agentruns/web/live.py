"""The poll protocol (DASHBOARD.md, section 7): a tag for what a region shows, 304 while it stays the same."""

from collections.abc import Callable
from functools import wraps
from typing import Any
from urllib.parse import urlsplit

from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseNotModified
from django.shortcuts import render

from agentruns import build
from agentruns.web import notices

View = Callable[..., HttpResponse]


def tag(request: HttpRequest, *parts: object) -> str:
    """What a region depends on, in one word: the person, the code that draws it, the banners, and `parts`."""
    user: Any = request.user
    shown = (user.pk, int(user.is_staff), build.current(), notices.digest(), *parts)
    return "-".join(str(part) for part in shown)


def answer(request: HttpRequest, tag: str, draw: Callable[[], HttpResponse]) -> HttpResponse:
    """304 to a poll that has seen `tag` already, else what `draw` draws.

    The tag is HX-PTag, not ETag: a browser turns the 304 to an If-None-Match back into a 200 with the whole body, and
    the page swaps it in.
    """
    response = HttpResponseNotModified() if request.headers.get("HX-PTag") == tag else draw()
    response["HX-PTag"] = tag
    return response


def fragment(view: View) -> View:
    """A view that answers polls: signed in, or told to sign in, since a redirect would be swapped into the page.

    What is missing or somebody else's becomes a small panel without poll attributes, so that the poll ends there.
    """

    @wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not request.user.is_authenticated:
            return _sign_in(request)
        response = view(request, *args, **kwargs)
        response["X-Build"] = build.current()
        response["Cache-Control"] = "no-store"
        return response

    return login_not_required(answer)


def gone(request: HttpRequest) -> HttpResponse:
    """The panel in place of a live region whose run is not there for this person (any more)."""
    return render(request, "gone.html", status=404)


def _sign_in(request: HttpRequest) -> HttpResponse:
    page = urlsplit(request.headers.get("HX-Current-URL", ""))
    back = f"{page.path}?{page.query}" if page.query else page.path or request.path
    login = redirect_to_login(back)
    return HttpResponse(status=401, headers={"HX-Redirect": login.url}) if request.headers.get("HX-Request") else login
