"""The database's clock. Leases and wake-ups are written and compared by it alone, never by two hosts' own."""

from typing import Any

from django.db.models import DateTimeField, Func
from django.db.models.expressions import Combinable, Value
from django.db.models.functions import Now


class Moment(Now):
    """The database's present: on PostgreSQL the wall clock, not the transaction's start."""

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return self.as_sql(compiler, connection, template="CLOCK_TIMESTAMP()", **extra)


class MomentPlus(Func):
    """The database's present plus its one argument, in the database's own arithmetic.

    Django's on SQLite is a Python function that the database calls back, once for each row.
    """

    output_field = DateTimeField()

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return self.as_sql(compiler, connection, template="(CLOCK_TIMESTAMP() + %(expressions)s)", **extra)

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        # Of the same form as Now: both are compared as texts.
        template = "STRFTIME('%%%%Y-%%%%m-%%%%d %%%%H:%%%%M:%%%%f', 'NOW', %(expressions)s)"
        return self.as_sql(compiler, connection, template=template, **extra)


class Seconds(Value):
    """So many, as the database adds them to a time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"{seconds:+.6f} seconds")

    def as_postgresql(self, compiler: Any, connection: Any) -> Any:
        sql, params = self.as_sql(compiler, connection)
        return f"{sql}::interval", params


def now() -> Combinable:
    return Moment()


def in_seconds(seconds: float) -> Combinable:
    """The database's present plus `seconds` (negative: minus)."""
    return MomentPlus(Seconds(seconds))
