"""The backend, as DATABASES["default"]["ENGINE"] = "agentruns.sqlite" names it."""

from typing import Any

from agentruns.sqlite import replace_old_sqlite

replace_old_sqlite()

import sqlite3  # noqa: E402
from sqlite3 import dbapi2  # noqa: E402

from django.db.backends.sqlite3 import base  # noqa: E402

# SQLite's own numbers and defaults (sqlite.org/c3ref/c_limit_attached.html, sqlite.org/limits.html).
LIMITS = {"SQLITE_LIMIT_COLUMN": (2, 2_000), "SQLITE_LIMIT_VARIABLE_NUMBER": (9, 32_766)}


class Connection(dbapi2.Connection):
    """With the getlimit() that Django asks for, and that the wheel pysqlite3 lacks."""

    def getlimit(self, category: int, /) -> int:
        return dict(LIMITS.values())[category]


class DatabaseWrapper(base.DatabaseWrapper):
    def get_connection_params(self) -> dict[str, Any]:
        params: dict[str, Any] = super().get_connection_params()
        return params if hasattr(dbapi2.Connection, "getlimit") else params | {"factory": Connection}


for name, (number, _) in LIMITS.items():
    if not hasattr(sqlite3, name):
        setattr(sqlite3, name, number)
