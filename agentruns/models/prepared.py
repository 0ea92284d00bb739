"""Statements that the ORM compiles once and that are then executed with other values.

A checkpoint is written at every step. Building its three statements anew takes the ORM eight times as long as the
database takes to do them; the SQL is the same each time, and comes from the models in either case.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connection
from django.db.models import BigIntegerField, CharField, Expression, Field, Model, PositiveIntegerField, QuerySet
from django.db.models.sql import UpdateQuery

from agentruns.models.moment import now

AS_IT_IS = (CharField, BigIntegerField, PositiveIntegerField)


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
        self.sql, self.params = query.get_compiler(DEFAULT_DB_ALIAS).as_sql()

    def execute(self, cursor: Any, **values: Any) -> int:
        """Rows that were changed. Slots take the `values` of their names."""
        cursor.execute(self.sql, [self._filled(param, values) for param in self.params])
        return int(cursor.rowcount)

    @staticmethod
    def _filled(param: Any, values: dict[str, Any]) -> Any:
        if type(param) is not Slot:
            return param
        return param.output_field.get_db_prep_save(values[param.name], connection)


class Insert:
    """One row of `model`, without the id that the database gives it. `timed`: fields for which it writes its now()."""

    def __init__(self, model: type[Model], timed: Sequence[str] = ()) -> None:
        quote = connection.ops.quote_name
        every: list[Field[Any, Any]] = [one for one in model._meta.concrete_fields if not one.primary_key]
        plain = [one for one in every if one.name not in timed]
        # Name of each attribute, and the field that prepares it, where it is not stored as it is.
        self.parts = [(one.attname, None if type(one) in AS_IT_IS else one) for one in plain]
        columns = [*plain, *(one for one in every if one.name in timed)]
        moment, _ = model._default_manager.all().query.get_compiler(DEFAULT_DB_ALIAS).compile(now())
        marks = ["%s"] * len(plain) + [moment] * len(timed)
        names = ", ".join(quote(str(one.column)) for one in columns)
        self.sql = f"INSERT INTO {quote(model._meta.db_table)} ({names}) VALUES ({', '.join(marks)})"  # noqa: S608

    def execute(self, cursor: Any, row: Model) -> None:
        ready = getattr(row, "prepared", {})
        cursor.execute(self.sql, [self._stored(row.__dict__, ready, *part) for part in self.parts])

    @staticmethod
    def _stored(kept: dict[str, Any], ready: Mapping[str, Any], name: str, field: Any) -> Any:
        if name in ready:
            return ready[name]
        return kept[name] if field is None else field.get_db_prep_save(kept[name], connection)
