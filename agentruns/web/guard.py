"""The database before the page: away, or of another schema than this code's, it gets a clear page, not a traceback."""

import logging
import time
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from django.db import DatabaseError, InterfaceError, connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from agentruns.web.theme import chosen

log = logging.getLogger(__name__)
# What must answer without a database: probes, and the files of the page that says so.
UNGUARDED = ("/healthz", "/readyz", "/static/")
# A schema that was right is looked at again after so long (seconds): the next release may have migrated meanwhile.
LOOK_SECONDS = 30.0


class Trouble(NamedTuple):
    """What is wrong with the database, and the remedy, for a page and for /readyz."""

    title: str
    reason: str
    remedy: str


class DatabaseGuard:
    """Middleware, before anything that reads a session."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.path.startswith(UNGUARDED):
            return self.get_response(request)
        if trouble := database_trouble():
            return unavailable(request, trouble)
        return self.get_response(request)


def unavailable(request: HttpRequest, trouble: Trouble) -> HttpResponse:
    """503 that says what to do. Rendered without a request: whatever reads a session would fail the same way."""
    page = render_to_string("unavailable.html", {"trouble": trouble, "theme": chosen(request)})
    return HttpResponse(page, status=503, headers={"Retry-After": "5", "Cache-Control": "no-store"})


_schema_was_right_at = float("-inf")


def database_trouble(*, fresh: bool = False) -> Trouble | None:
    """Why pages cannot be served from the database, if so. `fresh`: looks at the schema now, not once in a while."""
    global _schema_was_right_at
    try:
        connection.ensure_connection()
        if not fresh and time.monotonic() - _schema_was_right_at < LOOK_SECONDS:
            return None
        trouble = schema_trouble()
    except (DatabaseError, InterfaceError) as error:
        return away(error)
    _schema_was_right_at = float("-inf") if trouble else time.monotonic()
    return trouble


def forget() -> None:
    """Looks at the schema anew at the next page."""
    global _schema_was_right_at
    _schema_was_right_at = float("-inf")


def away(error: BaseException) -> Trouble:
    log.error("The database does not answer: %s", error)
    return Trouble(
        "The database does not answer",
        f"The database does not answer: {str(error).splitlines()[0] if str(error) else type(error).__name__}",
        "Check that it is up and that DATABASE_URL is right; this page works again as soon as it answers.",
    )


def schema_trouble() -> Trouble | None:
    """Migrations that this code has and the database lacks, or the other way round."""
    applied = set(MigrationRecorder(connection).applied_migrations())
    ours = migrations()
    if missing := sorted(ours - applied):
        return Trouble(
            "The database has an older schema than this code",
            f"The database lacks {_named(missing)}.",
            "Run: manage.py migrate",
        )
    apps = {app for app, _ in ours}
    if foreign := sorted((app, name) for app, name in applied - ours if app in apps):
        return Trouble(
            "The database has a newer schema than this code",
            f"The database has {_named(foreign)}, which this code does not know.",
            "Deploy the newer code; or, with that code, run manage.py migrate back to what this one knows.",
        )
    return None


@cache
def migrations() -> frozenset[tuple[str, str]]:
    """Every migration of this code, by app and name; read from disk once."""
    return frozenset(MigrationLoader(None).disk_migrations or {})


def _named(found: list[tuple[str, str]]) -> str:
    names = ", ".join(f"{app}.{name}" for app, name in found[:3])
    if len(found) == 1:
        return f"the migration {names}"
    return f"{len(found)} migrations ({names}{', …' if found[3:] else ''})"
