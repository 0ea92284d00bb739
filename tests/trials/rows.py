"""Plain SQL on either database, by the driver: the judge asks nothing of the code that it judges."""

from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pysqlite3.dbapi2 as sqlite


class Rows:
    """rows = Rows("sqlite:///…"); rows.ask("SELECT status FROM agentruns_run WHERE id = ?", run)"""

    def __init__(self, url: str) -> None:
        self.is_sqlite = url.startswith("sqlite")
        self.url = urlsplit(url).path if self.is_sqlite else url

    def ask(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        if self.is_sqlite:
            with sqlite.connect(self.url, timeout=30) as line:
                found = line.execute(sql, values).fetchall()
            line.close()
            return list(found)
        with psycopg.connect(self.url, autocommit=True) as line:
            return line.execute(sql.replace("?", "%s"), values).fetchall()

    def one(self, sql: str, *values: Any) -> Any:
        found = self.ask(sql, *values)
        return found[0][0] if found else None

    def id(self, run: str) -> str:
        """A run's id as it is stored."""
        return run.replace("-", "") if self.is_sqlite else run

    def epoch(self, moment: Any) -> float:
        if isinstance(moment, str):
            moment = datetime.fromisoformat(moment).replace(tzinfo=UTC)
        return float(moment.timestamp())
