"""The rows under runs, and those that processes leave: each table by itself, for looking things up."""

from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from agentruns.admin.looking import RowAdmin, harmless
from agentruns.models import Attempt, Call, Event, Grant, Halt, IdempotencyKey, Process, Provider, Step, Wait


class OfRun(RowAdmin):
    """Rows of a run: they name it without loading its task."""

    ordering = ("-pk",)
    list_select_related: ClassVar[tuple[str, ...]] = ("run",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).defer("run__task", "run__params")


@admin.register(Step)
class StepAdmin(OfRun):
    list_display = ("run", "path", "kind", "finished_at")
    list_filter = ("kind",)
    search_fields = ("path",)
    payload = ("output", "reads", "labels")
    fields = ("run", "path", "kind", "value", "labels", "reads", "started_at", "finished_at")

    @admin.display(description="output")
    def value(self, step: Step) -> str:
        return harmless(step.value())


@admin.register(Attempt)
class AttemptAdmin(OfRun):
    list_display = ("run", "path", "number", "outcome", "cause", "worker", "ended_at")
    list_filter = ("outcome", "cause")
    payload = ("error", "traceback")


@admin.register(Call)
class CallAdmin(OfRun):
    list_display = ("run", "path", "number", "state", "model", "cost", "reserved", "response_id", "created_at")
    list_filter = ("state", "reserved_on")
    search_fields = ("response_id__startswith",)
    payload = ("request", "answer", "partial", "error", "price")
    exclude = ("request", "request_body", "answer", "answer_body")
    readonly_fields = ("sent", "answered")

    @admin.display(description="request")
    def sent(self, call: Call) -> str:
        return harmless(call.request_sent())

    @admin.display(description="answer")
    def answered(self, call: Call) -> str:
        return harmless(call.reply())


@admin.register(Wait)
class WaitAdmin(OfRun):
    list_display = ("run", "path", "kind", "until", "opened_at", "closed_at", "closed_by")
    list_filter = ("kind", ("closed_at", admin.EmptyFieldListFilter))
    list_select_related = ("run", "closed_by")
    payload = ("payload",)


@admin.register(Event)
class EventAdmin(OfRun):
    list_display = ("run", "version", "kind", "path", "at", "by")
    list_filter = ("kind",)
    list_select_related = ("run", "by")
    payload = ("about",)


@admin.register(Grant)
class GrantAdmin(OfRun):
    list_display = ("run", "path", "effect", "given", "by", "at", "until", "consumed_at")
    list_select_related = ("run", "by")
    payload = ("reason",)


@admin.register(IdempotencyKey)
class IdempotencyKeyAdmin(OfRun):
    list_display = ("scope", "key", "state", "run", "created_at", "settled_at")
    list_filter = ("scope", "state")
    payload = ("arguments", "answer")


@admin.register(Provider)
class ProviderAdmin(RowAdmin):
    list_display = ("base_url", "model", "background", "probed_at", "stopped_at", "reason")


@admin.register(Process)
class ProcessAdmin(RowAdmin):
    list_display = ("name", "kind", "host", "pid", "build", "started_at", "seen_at", "stopped_at")
    list_filter = ("kind", ("stopped_at", admin.EmptyFieldListFilter))
    ordering = ("-seen_at",)


@admin.register(Halt)
class HaltAdmin(RowAdmin):
    list_display = ("at", "by", "ended_at", "ended_by")
    list_select_related = ("by", "ended_by")
    ordering = ("-at",)
