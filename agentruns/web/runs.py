"""`/`: the form that starts a run, and the list of runs."""

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from agentruns.plan import plans
from agentruns.web import live
from agentruns.web.forms import NewRun, draft_of
from agentruns.web.listing import Listing
from agentruns.web.plans import cards
from agentruns.web.redirect import see_other


@require_http_methods(["GET", "HEAD", "POST"])
def runs(request: HttpRequest) -> HttpResponse:
    """GET shows form and list; POST starts a run and leads to it, or shows what to mend with everything typed."""
    if request.method != "POST":
        return _page(request, _draft(request))
    form = NewRun(request.POST)
    if run := form.start(request.user):
        return see_other(run.get_absolute_url())
    return _page(request, form, status=422)


@live.fragment
@require_safe
def runs_live(request: HttpRequest) -> HttpResponse:
    """The list as it is now; 304 while nothing in it has changed."""
    listing = Listing.asked_by(request.user, request.GET)
    tag = live.tag(request, *listing.tag_parts())
    return live.answer(request, tag, lambda: render(request, "runs.html#live", _seen(listing, tag)))


def _page(request: HttpRequest, form: NewRun, status: int = 200) -> HttpResponse:
    listing = Listing.asked_by(request.user, request.GET)
    tag = live.tag(request, *listing.tag_parts())  # before the rows are read: a change in between is then seen
    can_mail = bool(settings.EMAIL_URL and request.user.email)  # type: ignore[union-attr]
    context = {"form": form, "plans": cards(), "can_mail": can_mail, **_seen(listing, tag)}
    return render(request, "runs.html", context, status=status)


def _seen(listing: Listing, tag: str) -> dict[str, Any]:
    here = reverse("runs") + listing.query().removesuffix("?")
    return {"listing": listing.load(), "tag": tag, "here": here, "demo": settings.AGENT_DEMO}


def _draft(request: HttpRequest) -> NewRun:
    """Empty; or, asked for by ?plan= or ?again=, filled."""
    again = request.GET.get("again", "")
    if again and (run := Listing(request.user, search=again).matching.first()):
        return draft_of(run)
    return NewRun(initial={"plan": request.GET.get("plan") or next(iter(plans.all()), "")})
