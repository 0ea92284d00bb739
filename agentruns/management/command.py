"""What the commands share: one line and exit 2 for whatever a person can mend; a run found by what he typed."""

import logging
import os
import re
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import django.db
from django.contrib.auth import get_user_model
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.db import InterfaceError, OperationalError, connection

from agentruns import environment, queues, schema
from agentruns.errors import PlanError, Refusal
from agentruns.management.terminal import line
from agentruns.models import Process, Run
from agentruns.models.run import SHORTEST_ID, id_begins

INTERRUPTED = 130  # as a shell has it for a process that Ctrl-C ended


class Error(CommandError):
    """One sentence with its remedy; Django prints it behind this class's name, with no traceback."""

    def __init__(self, message: object) -> None:
        super().__init__(line(message), returncode=2)


class Command(BaseCommand):
    """Base of the commands for people. `--traceback` shows where an error came from."""

    # The whole check framework imports every page; what can be wrong for a command is looked at in `execute`.
    requires_system_checks = []

    def execute(self, *args: Any, **options: Any) -> Any:
        tolerate_any_encoding()
        try:
            refuse_wrong_settings()
            refuse_wrong_schema()
            with silent_bell():
                said = super().execute(*args, **options)
            sys.stdout.flush()  # here, where a reader that has gone is not an error of ours
            return said
        except (Refusal, PlanError) as error:
            raise Error(error) from error
        except (django.db.Error, ImproperlyConfigured) as error:
            raise Error(database_trouble(error)) from error
        except BrokenPipeError:  # `manage.py runs | head`: the reader has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)

    def note(self, text: str) -> None:
        """Something that a person should know, and a program that reads stdout should not."""
        self.stderr.write(line(text), self.style.NOTICE)

    def note_delay(self, run: Run) -> None:
        """Why a run that is due will not begin at once, if so."""
        if run.status != "queued":
            return
        if queues.depth() is None:
            self.note("Redis is down; the run starts when it is back.")
        elif not Process.living("worker").exists():
            self.note("No worker is running; the run starts when one is: manage.py up, or manage.py worker")


def tolerate_any_encoding() -> None:
    """A terminal that cannot show a character shows its escape; it does not end the command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def refuse_wrong_settings() -> None:
    for problem in environment.problems:
        raise Refusal(f"{problem.message} {problem.hint}")


def refuse_wrong_schema() -> None:
    if trouble := schema.trouble():
        raise Refusal(trouble)


def database_trouble(error: Exception) -> str:
    """Where the database was expected and what came back, without its password."""
    parts = connection.settings_dict
    place = f"SQLite, {parts['NAME']}"
    if connection.vendor != "sqlite":
        place = f"{connection.display_name} at {parts['HOST'] or 'its local socket'}:{parts['PORT'] or 'default port'}"
    why = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
    if isinstance(error, (OperationalError, InterfaceError)):
        return f"The database does not answer ({place}): {why}. Start it, or mend DATABASE_URL."
    return f"The database ({place}) refused: {type(error).__name__}: {why}"


@contextmanager
def silent_bell() -> Iterator[None]:
    """Without the log's line that Redis did not take a ring: what that means here is said by note_delay."""
    bell = logging.getLogger("agentruns.queues")
    before = bell.level
    bell.setLevel(logging.ERROR)
    try:
        yield
    finally:
        bell.setLevel(before)


# --- what a person typed ------------------------------------------------------------------------------------------


def add_id(parser: ArgumentParser, *, optional: bool = False) -> None:
    """`optional`: without it the command is about all runs."""
    about = f"the run's id, or at least {SHORTEST_ID} characters of its start"
    parser.add_argument("id", metavar="ID", help=about, nargs="?" if optional else None)


def add_by(parser: ArgumentParser, *, required: bool = False) -> None:
    parser.add_argument("--by", metavar="USER", required=required, help="the account in whose name it is done")


def user_called(name: str | None) -> Any:
    """The active account called `name`, or None when no name is given."""
    if not name:
        return None
    user = get_user_model().objects.filter(**{get_user_model().USERNAME_FIELD: name}).first()
    if user is None:
        raise Refusal(f"There is no account called {name!r}. Make one with: manage.py createsuperuser --username …")
    if not user.is_active:
        raise Refusal(f"The account {name!r} is not active. Name another, or activate it in the admin.")
    return user


def check_may(by: Any, permission: str, what: str) -> None:
    """Raises Refusal for an account, if one is named, without `permission`."""
    if by is not None and not by.has_perm(permission):
        raise Refusal(f"{by.get_username()} may not {what}: the permission {permission} is needed.")


def run_called(text: str, by: Any = None) -> Run:
    """The run whose id is, or alone begins with, `text`; with `by`, among those that this account may see."""
    if not re.fullmatch(f"[0-9a-fA-F]{{{SHORTEST_ID},32}}", text.strip().replace("-", "")):
        raise Refusal(
            f"{text[:60]!r} is no run id: give it whole, or at least {SHORTEST_ID} characters of its start. "
            "They are listed by: manage.py runs"
        )
    seen = Run.objects.select_related("owner").filter(id_begins(text))
    found = list(seen if by is None else seen.visible_to(by))[:2]
    if not found:
        whose = f" that {by.get_username()} may see" if by else ""
        raise Refusal(f"There is no run {text[:60]}{whose}. They are listed by: manage.py runs")
    if len(found) > 1:
        raise Refusal(f"More than one run begins with {text[:60]}: give more of its id.")
    return found[0]
