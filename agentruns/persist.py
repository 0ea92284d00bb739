"""Writes whose loss would cost work: repeated while the claim lives, and never done twice."""

import logging
import time
from collections.abc import Callable
from typing import Protocol

from django.db import (
    DEFAULT_DB_ALIAS,
    Error,
    IntegrityError,
    InterfaceError,
    OperationalError,
    connection,
    connections,
)

from agentruns.errors import LeaseLost

log = logging.getLogger(__name__)
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 2.0
# What SQLite, too, calls an operational error (sqlite.org/rescode.html): ERROR (no such column), PERM, READONLY,
# CORRUPT, AUTH, NOTADB.
LASTING = {1, 3, 8, 11, 23, 26}


class Living(Protocol):
    def living(self) -> None:
        """Raises LeaseLost when the lease may have run out."""


def persist(authority: Living, write: Callable[[], None], landed: Callable[[], bool]) -> None:
    """Does a `write` that must not be lost; when the connection breaks, asks whether it `landed` before repeating it.

    The value stays in hand: what it took to make it is not done again. Raises LeaseLost when the lease runs out first.
    """
    pause, in_doubt = FIRST_PAUSE_SECONDS, False
    while True:
        try:
            if not (in_doubt and landed()):
                write()
            return
        except (OperationalError, InterfaceError) as error:
            log.warning("A write got no answer (%s); asking whether it landed.", str(error).strip())
            connection.close()
            in_doubt = True
        except (IntegrityError, LeaseLost):
            # The server went on with a COMMIT whose connection was gone, after we had looked.
            if in_doubt and landed():
                return
            raise
        authority.living()
        time.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


def is_passing(error: Error) -> bool:
    """Whether the database may well do the same later: it was away, busy or full.

    Otherwise it refused what it was asked for what that is (a permission, a broken file, a column that it does not
    have, a row that is there already), and will again: that is for a person.
    """
    if not isinstance(error, OperationalError | InterfaceError):
        return False
    code = getattr(error.__cause__, "sqlite_errorcode", None)
    return code is None or code & 0xFF not in LASTING


def leave_connection() -> None:
    """Gives this thread a new connection, whatever state the old one was in; what it had not committed is undone.

    For after an exception that may have struck in the middle of Django's own bookkeeping, or a transaction that a
    function left open: a write of ours in there would look committed, and would not be.
    """
    raw = connection.connection
    del connections[DEFAULT_DB_ALIAS]
    if raw is not None:
        try:
            raw.close()
        except Exception as error:  # any driver's; the new connection does not depend on it
            log.warning("An old database connection was not closed: %s", error)


def in_transaction() -> bool:
    """Whether somebody's transaction is open on this thread's connection: a commit of ours would not be one."""
    here = connections[DEFAULT_DB_ALIAS]  # looked up once: this is asked at each use of ctx
    return here.connection is not None and (here.in_atomic_block or not here.autocommit)
