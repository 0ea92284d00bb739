"""Two looks from outside: is this process there (/healthz), and could it serve (/readyz)."""

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, JsonResponse

from agentruns.web import notices
from agentruns.web.guard import database_trouble


@login_not_required
def healthz(request: HttpRequest) -> HttpResponse:
    """200 while this process answers at all; asks nothing of database or Redis."""
    return HttpResponse("ok\n", content_type="text/plain")


@login_not_required
def readyz(request: HttpRequest) -> JsonResponse:
    """200 when database and Redis answer, else 503; each with "ok" or the reason."""
    database = database_trouble(fresh=True)
    found = {"database": database.reason if database else "ok", "redis": notices.redis_trouble() or "ok"}
    return JsonResponse(found, status=200 if set(found.values()) == {"ok"} else 503)
