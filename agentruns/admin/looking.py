"""How the admin shows rows that only verbs may change."""

import json
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.db.models import QuerySet
from django.forms.models import BaseInlineFormSet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from agentruns.models.fields import EncodedField
from agentruns.web.words import visible

# A run may have thousands of rows: a page holds the newest ones, and links to all.
NEWEST = 200
CHARACTERS = 32_768


class ReadOnly:
    """No adding, no changing, no deleting, whoever asks: not even a superuser edits a ledger."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class RowAdmin(ReadOnly, admin.ModelAdmin):
    """A table that may be large: no count of all of it, and no payload for the list."""

    show_full_result_count = False
    list_per_page = 100
    payload: Sequence[str] = ()
    """Columns that are loaded only by the page of one row."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request)
        match = request.resolver_match
        return rows if match and "object_id" in match.kwargs else rows.defer(*self.payload)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Stored JSON is shown as harmless text, not as Python would print it."""
        columns: dict[Any, Any] = {
            field.name: shown(field) for field in self.opts.fields if isinstance(field, EncodedField)
        }
        return [
            (title, {**options, "fields": [columns.get(name, name) for name in options["fields"]]})
            for title, options in super().get_fieldsets(request, obj)
        ]


def shown(field: EncodedField) -> Callable[[Any], str]:
    """The field as a column of the admin."""

    @admin.display(description=field.verbose_name)
    def column(row: Any) -> str:
        return harmless(getattr(row, field.name))

    column.__name__ = f"{field.name}_shown"
    return column


def harmless(value: Any) -> str:
    """Text as it is, other JSON indented; nothing hidden or reordered in it, and not all of it when it is long."""
    words = value if isinstance(value, str) else json.dumps(value, indent=1, default=repr, ensure_ascii=False)
    more = f"\n… and {len(words) - CHARACTERS:,} characters more" if len(words) > CHARACTERS else ""
    return visible(words[:CHARACTERS]) + more


class NewestFormSet(BaseInlineFormSet):
    """The newest rows of one run, oldest first."""

    def get_queryset(self) -> Any:
        if not hasattr(self, "_newest"):
            self._newest = list(super().get_queryset().order_by("-pk")[:NEWEST])[::-1]
        return self._newest


class RowInline(ReadOnly, admin.TabularInline):
    """Rows under a run. Payloads are not loaded; the heading says when there are more rows, and where."""

    formset = NewestFormSet
    extra = 0
    can_delete = False
    show_change_link = True
    payload: Sequence[str] = ()

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).defer(*self.payload)

    def get_formset(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> Any:
        count = self.get_queryset(request).filter(run=obj).count() if obj else 0
        if count > NEWEST:
            address = reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist")
            self.verbose_name_plural = format_html(
                '{}: the newest {} of {} (<a href="{}?{}">all of them</a>)',
                str(self.opts.verbose_name_plural).capitalize(), NEWEST, f"{count:,}", address,
                urlencode({"run__id__exact": str(obj.pk)}),
            )  # fmt: skip
        return super().get_formset(request, obj, **kwargs)
