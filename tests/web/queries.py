"""What a page asks of the database."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection


@contextmanager
def queries() -> Iterator[list[str]]:
    """The SQL of every query made inside, in order.

    Not Django's CaptureQueriesContext: its cursor wants a getlimit() that pysqlite3's connections do not have.
    """
    asked: list[str] = []

    def note(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        asked.append(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        yield asked
