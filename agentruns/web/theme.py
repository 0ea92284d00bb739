"""Light, dark or as the system has it: a cookie, so that the server renders it and nothing flashes."""

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_POST

from agentruns.web.redirect import back

THEMES = ("system", "light", "dark")
YEAR = 365 * 24 * 3600


def chosen(request: HttpRequest) -> str:
    theme = request.COOKIES.get("theme", "")
    return theme if theme in THEMES else "system"


def following(theme: str) -> str:
    """What the button switches to."""
    return THEMES[(THEMES.index(theme) + 1) % len(THEMES)]


@login_not_required
@require_POST
def switch(request: HttpRequest) -> HttpResponse:
    """Keeps the theme that was asked for and returns to the page."""
    response = back(request, reverse("runs"))
    theme = request.POST.get("theme", "")
    if theme in THEMES:
        response.set_cookie("theme", theme, max_age=YEAR, samesite="Lax")
    return response
