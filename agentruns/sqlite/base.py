"""The backend, as DATABASES["default"]["ENGINE"] = "agentruns.sqlite" names it."""

from typing import Any

from agentruns.sqlite import replace_old_sqlite

replace_old_sqlite()

import sqlite3  # noqa: E402
from functools import lru_cache  # noqa: E402
from sqlite3 import dbapi2  # noqa: E402

from django.db.backends.sqlite3 import base  # noqa: E402

# SQLite's own numbers and defaults (sqlite.org/c3ref/c_limit_attached.html, sqlite.org/limits.html).
LIMITS = {"SQLITE_LIMIT_COLUMN": (2, 2_000), "SQLITE_LIMIT_VARIABLE_NUMBER": (9, 32_766)}


class Connection(dbapi2.Connection):
    """With the getlimit() that Django asks for, and that the wheel pysqlite3 lacks."""

    def getlimit(self, category: int, /) -> int:
        return dict(LIMITS.values())[category]


@lru_cache(maxsize=512)
def with_question_marks(query: str) -> str:
    return str(base.FORMAT_QMARK_REGEX.sub("?", query).replace("%%", "%"))


class Cursor(base.SQLiteCursorWrapper):
    """Rewrites the placeholders of a statement once, and not each time that it is executed."""

    def convert_query(self, query: str, *, param_names: list[str] | None = None) -> str:
        if param_names is None:
            return with_question_marks(query)
        return str(super().convert_query(query, param_names=param_names))


class DatabaseWrapper(base.DatabaseWrapper):
    def create_cursor(self, name: str | None = None) -> Any:
        return self.connection.cursor(factory=Cursor)

    def _start_transaction_under_autocommit(self) -> None:
        """As Django's, which makes a cursor and its wrappers for this one word; they are needed where it is logged."""
        if self.queries_logged:
            super()._start_transaction_under_autocommit()  # type: ignore[misc]
            return
        mode = self.transaction_mode or ""  # type: ignore[attr-defined]
        with self.wrap_database_errors:
            self.connection.execute(f"BEGIN {mode}")

    def get_connection_params(self) -> dict[str, Any]:
        params: dict[str, Any] = super().get_connection_params()
        return params if hasattr(dbapi2.Connection, "getlimit") else params | {"factory": Connection}


for name, (number, _) in LIMITS.items():
    if not hasattr(sqlite3, name):
        setattr(sqlite3, name, number)
