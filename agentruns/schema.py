"""Whether the database's schema is the one that this code was written for."""

from functools import cache

from django.db import connection
from django.db.migrations import Migration
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder


def trouble() -> str:
    """What is wrong with the schema, and the remedy, in one sentence; empty when it fits. One or two queries.

    Raises django.db.Error when the database does not answer.
    """
    applied = set(MigrationRecorder(connection).applied_migrations())
    if newer := sorted(name for app, name in applied if app == "agentruns" and (app, name) not in known()):
        return (
            f"The database has a newer schema than this code (agentruns.{newer[0]}). Run the newer agentruns, or set "
            "DATABASE_URL to another database."
        )
    if not any(app == "agentruns" for app, _ in applied):
        return "The database has no tables of agentruns yet. Run: manage.py migrate (or manage.py up, which does it)."
    if missing := sorted(f"{app}.{name}" for app, name in wanted() - applied):
        return f"The database has an older schema than this code (it lacks {missing[0]}). Run: manage.py migrate"
    return ""


@cache
def wanted() -> frozenset[tuple[str, str]]:
    """Every migration that this code brings, by app and name."""
    return frozenset(on_disk())


@cache
def known() -> frozenset[tuple[str, str]]:
    """Those, and what they were squashed from: a database that was migrated before has these."""
    return wanted() | {(app, name) for migration in on_disk().values() for app, name in migration.replaces}


def on_disk() -> dict[tuple[str, str], Migration]:
    loader = MigrationLoader(None, load=False)
    loader.load_disk()
    return dict(loader.disk_migrations)
