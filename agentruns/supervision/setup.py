"""Before the household starts: the database is there and of our schema, somebody can log in, what is used is said."""

import os
import secrets
from dataclasses import dataclass
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import IntegrityError, connection
from django.db.migrations.recorder import MigrationRecorder

from agentruns import __version__, schema
from agentruns.errors import Refusal
from agentruns.supervision import embedded

FIRST_USER = "admin"


@dataclass(frozen=True)
class Account:
    name: str
    password: str  # empty: it was made before, and nobody knows it but its owner


def prepare_database() -> None:
    """Migrates it. Raises Refusal for one that a newer version changed, django.db.Error when it does not answer."""
    applied = set(MigrationRecorder(connection).applied_migrations())
    if {key for key in applied if key[0] == "agentruns"} - schema.known():
        raise Refusal(schema.trouble())
    if schema.wanted() - applied:
        call_command("migrate", interactive=False, verbosity=0)


def first_account() -> Account:
    """A first person who may do everything, with a password that is shown once; only where there is nobody yet."""
    users = get_user_model().objects
    if known_name := users.order_by("-is_superuser", "pk").values_list("username", flat=True).first():
        return Account(known_name, "")
    password = secrets.token_urlsafe(12)
    try:
        users.create_superuser(FIRST_USER, password=password)
    except IntegrityError:  # another `up` on the same database was first
        password = ""
    return Account(FIRST_USER, password)


# --- what is used, in words ---------------------------------------------------------------------------------------


def summary(address: str, account: Account, workers: int) -> str:
    secret = (
        f"password {account.password}  (shown only this once)"
        if account.password
        else f"password as before  (forgotten: manage.py changepassword {account.name})"
    )
    lines = [
        ("Address", address),
        ("Account", f"{account.name}, {secret}"),
        ("Database", database()),
        ("Redis", redis()),
        ("Model", model()),
        ("Budget", budget()),
        ("Workers", str(workers)),
    ]
    return "\n".join([f"agentruns {__version__}", "", *(f"  {name:<9} {text}" for name, text in lines), ""])


def database() -> str:
    parts = settings.DATABASES["default"]
    if connection.vendor == "sqlite":
        return f"SQLite, {parts['NAME']}"
    place = f"{parts.get('HOST') or 'local socket'}{':' + str(parts['PORT']) if parts.get('PORT') else ''}"
    return f"{connection.display_name}, {parts['NAME']} at {place}"


def redis() -> str:
    if not os.environ.get("REDIS_URL"):
        return f"embedded, {embedded.socket_path(settings.AGENTRUNS_HOME)}"
    url = urlsplit(settings.REDIS_URL)
    return f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"


def model() -> str:
    if settings.AGENT_DEMO:
        return "DEMO: scripted, no AI, prices invented. For a real one set AGENT_MODEL and OPENAI_API_KEY."
    return f"{settings.AGENT_MODEL} at {urlsplit(settings.OPENAI_BASE_URL or 'https://api.openai.com').hostname}"


def budget() -> str:
    daily = f"{settings.AGENT_DAILY_BUDGET_USD} USD a day" if settings.AGENT_DAILY_BUDGET_USD else "no limit a day"
    return f"{settings.AGENT_BUDGET_USD} USD a run, {daily}"
