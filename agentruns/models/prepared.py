"""Statements that the ORM compiles once and that are then executed with other values.

A checkpoint is written at every step. Building its three statements anew takes the ORM eight times as long as the
database takes to do them; the SQL is the same each time, and comes from the models in either case.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connection
from django.db.models import (
    BigIntegerField,
    CharField,
    DateTimeField,
    Expression,
    Field,
    ForeignKey,
    Model,
    PositiveIntegerField,
    QuerySet,
    UUIDField,
)
from django.db.models.sql import UpdateQuery

from agentruns.models.fields import EncodedField
from agentruns.models.moment import now


class Slot(Expression):
    """Stands in a queryset for a value that each execution brings."""

    def __init__(self, name: str, field: Any) -> None:
        super().__init__(output_field=field)
        self.name = name

    def as_sql(self, compiler: Any, connection: Any) -> Any:
        return "%s", [self]


class Update:
    """`queryset.update(**values)`, with Slots among the conditions and values."""

    def __init__(self, queryset: QuerySet[Any], values: dict[str, Any]) -> None:
        query: Any = queryset.query.chain(UpdateQuery)
        query.add_update_values(values)
        self.sql, params = query.get_compiler(DEFAULT_DB_ALIAS).as_sql()
        self.params = list(params)
        slots = [(place, param) for place, param in enumerate(params) if type(param) is Slot]
        self.slots = [(place, slot.name, stored_by(slot.output_field)) for place, slot in slots]

    def execute(self, cursor: Any, **values: Any) -> int:
        """Rows that were changed. Slots take the `values` of their names."""
        params = self.params.copy()
        for place, name, stored in self.slots:
            params[place] = stored(values[name])
        cursor.execute(self.sql, params)
        return int(cursor.rowcount)


class Insert:
    """One row of `model`, without the id that the database gives it. `timed`: fields for which it writes its now()."""

    def __init__(self, model: type[Model], timed: Sequence[str] = ()) -> None:
        quote = connection.ops.quote_name
        every: list[Field[Any, Any]] = [one for one in model._meta.concrete_fields if not one.primary_key]
        plain = [one for one in every if one.name not in timed]
        self.parts = [(one.attname, stored_by(one)) for one in plain]
        columns = [*plain, *(one for one in every if one.name in timed)]
        moment, _ = model._default_manager.all().query.get_compiler(DEFAULT_DB_ALIAS).compile(now())
        marks = ["%s"] * len(plain) + [moment] * len(timed)
        names = ", ".join(quote(str(one.column)) for one in columns)
        self.sql = f"INSERT INTO {quote(model._meta.db_table)} ({names}) VALUES ({', '.join(marks)})"  # noqa: S608

    def execute(self, cursor: Any, row: Any) -> None:
        """`row` has a value for each column; its `prepared`, if it has that, those that are in the database's form."""
        kept, ready = row.__dict__, getattr(row, "prepared", {})
        cursor.execute(self.sql, [ready[name] if name in ready else stored(kept[name]) for name, stored in self.parts])


def stored_by(field: Any) -> Callable[[Any], Any]:
    """What brings a value of `field` into the database's form; the slow general way only where there is no quicker."""
    match field:
        case CharField() | BigIntegerField() | PositiveIntegerField():
            return as_it_is
        case EncodedField():
            return field.get_prep_value
        case DateTimeField():
            return lru_cache(maxsize=8)(connection.ops.adapt_datetimefield_value)
        case ForeignKey() | UUIDField():  # the same few again and again
            return lru_cache(maxsize=64)(lambda value: field.get_db_prep_save(value, connection))
        case _:
            return lambda value: field.get_db_prep_save(value, connection)


def as_it_is(value: Any) -> Any:
    return value
