"""Django's SQLite backend on a SQLite without the WAL fault.

SQLite before 3.51.3 can damage a WAL file when a checkpoint races with a reset (sqlite.org/wal.html). Where Python's
own is older, the wheel pysqlite3 takes its place in this process, before Django's backend imports it.
"""

import sqlite3
import sys

WITHOUT_WAL_FAULT = (3, 51, 3)


def replace_old_sqlite() -> None:
    """Puts pysqlite3 in sqlite3's place if Python's own is too old; without the wheel a system check tells."""
    if sqlite3.sqlite_version_info >= WITHOUT_WAL_FAULT:
        return
    try:
        import pysqlite3
        import pysqlite3.dbapi2
    except ImportError:  # no wheel for this machine
        return
    sys.modules["sqlite3"] = pysqlite3
    sys.modules["sqlite3.dbapi2"] = pysqlite3.dbapi2
