"""The database's clock. Leases and wake-ups are written and compared by it alone, never by two hosts' own."""

from datetime import timedelta
from typing import Any

from django.db.models import DateTimeField, ExpressionWrapper
from django.db.models.expressions import Combinable
from django.db.models.functions import Now


class Moment(Now):
    """The database's present: on PostgreSQL the wall clock, not the transaction's start."""

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return self.as_sql(compiler, connection, template="CLOCK_TIMESTAMP()", **extra)


def now() -> Combinable:
    return Moment()


def in_seconds(seconds: float) -> Combinable:
    """The database's present plus `seconds` (negative: minus)."""
    return ExpressionWrapper(Moment() + timedelta(seconds=seconds), output_field=DateTimeField())
