"""An internal API, served by gunicorn in a process of its own: POST /notices behind @idempotent, and what came of it.

A Django project of one file, with its own database. Where a test has put a file of that name into API_HOME, it kills
itself once: `in-the-view`, with the notice written and not committed, or `before-the-answer`, with all of it committed.
"""

import json
import os
import signal
from pathlib import Path
from typing import Any

import dj_database_url
import django
from django.conf import settings

HOME = Path(os.environ["API_HOME"])
settings.configure(
    SECRET_KEY="of the notices", ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__,
    INSTALLED_APPS=["agentruns", "django.contrib.auth", "django.contrib.contenttypes"],
    DATABASES={"default": dj_database_url.parse(os.environ["API_DATABASE"])},
)  # fmt: skip
django.setup()

from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.db import connection, models  # noqa: E402
from django.http import HttpRequest, JsonResponse  # noqa: E402
from django.urls import path  # noqa: E402
from django.views.decorators.csrf import csrf_exempt  # noqa: E402
from django.views.decorators.http import require_POST  # noqa: E402

from agentruns.receiving import idempotent  # noqa: E402


class Notice(models.Model):
    text = models.TextField()

    class Meta:
        app_label = "notices"

    def __str__(self) -> str:
        return self.text


def die_here(name: str) -> None:
    if (HOME / name).exists():
        (HOME / name).unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def mortal(view: Any) -> Any:
    def answer(request: HttpRequest) -> Any:
        response = view(request)
        die_here("before-the-answer")
        return response

    return answer


@csrf_exempt
@require_POST
@mortal
@idempotent(stale=1)
def post(request: HttpRequest) -> JsonResponse:
    with open(HOME / "begun", "a") as begun:
        begun.write(request.headers["Idempotency-Key"] + "\n")
    notice = Notice.objects.create(text=json.loads(request.body)["text"])
    die_here("in-the-view")
    return JsonResponse({"notice": notice.pk}, status=201)


urlpatterns = [path("notices", post)]

if Notice._meta.db_table not in connection.introspection.table_names():
    with connection.schema_editor() as editor:
        editor.create_model(Notice)
connection.close()
application = get_wsgi_application()
