"""Fields: any JSON value as ASCII text, the same on both databases, decoded when read; and the rows' own numbers."""

from typing import Any

from django.db import models

from agentruns import encoding


class Corrupt:
    """Stands for a stored text that is no JSON (any more): loading a list never fails over one bad row."""

    def __init__(self, text: str, reason: str) -> None:
        self.text, self.reason = text, reason

    def __repr__(self) -> str:
        return f"<corrupt: {self.reason}>"


def decoded(text: str) -> Any:
    """The value of a stored text, or Corrupt."""
    try:
        return encoding.loads(text)
    except (ValueError, RecursionError) as error:
        return Corrupt(text, str(error))


class EncodedField(models.TextField):
    """JSON of any depth and bytes (encoding.py). None is stored as NULL."""

    # What django-stubs reads a field's type from: TextField's own would be str.
    _pyi_private_set_type: Any
    _pyi_private_get_type: Any

    def from_db_value(self, value: str | None, expression: Any, connection: Any) -> Any:
        return None if value is None else decoded(value)

    def get_prep_value(self, value: Any) -> Any:
        if value is None or hasattr(value, "resolve_expression"):
            return value
        if isinstance(value, Corrupt):
            return value.text
        return encoding.dumps(value)

    def to_python(self, value: Any) -> Any:
        return value

    def value_to_string(self, obj: Any) -> str:
        return encoding.dumps(self.value_from_object(obj))


class RowNumber(models.BigAutoField):
    """A row's number, given by the database. Without SQLite's AUTOINCREMENT, which keeps the numbers of deleted rows
    from coming back by a table that is written with each row: one page more in every commit."""

    def db_type_suffix(self, connection: Any) -> str | None:
        return None if connection.vendor == "sqlite" else super().db_type_suffix(connection)
