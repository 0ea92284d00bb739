"""Runs with what is under them, and the orders that a person may give here."""

from collections.abc import Callable, Iterator
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin import ActionLocation
from django.db.models import QuerySet
from django.http import HttpRequest

from agentruns import queues
from agentruns.admin.looking import RowAdmin, RowInline, harmless
from agentruns.errors import PlanError, WrongState
from agentruns.models import Attempt, Call, Event, Run, Step, Wait
from agentruns.models.run import id_begins
from agentruns.plan import plans
from agentruns.web.events import sentence
from agentruns.web.words import usd

# Why so many runs did not obey is told one by one; of more, how many.
REASONS_TOLD = 20
EVERYWHERE = [ActionLocation.CHANGE_LIST, ActionLocation.CHANGE_FORM]


class PlanFilter(admin.SimpleListFilter):
    """By the plans that there are: asking the rows would read the whole table."""

    title = "plan"
    parameter_name = "plan"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        try:
            return [(name, plan.title) for name, plan in sorted(plans.all().items())]
        except PlanError:  # the system check says which; the list is still of use
            return []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        return queryset.filter(plan=self.value()) if self.value() else queryset


class StepInline(RowInline):
    model = Step
    payload = ("output", "reads")
    fields = readonly_fields = ("kind", "labels", "started_at", "finished_at")


class AttemptInline(RowInline):
    model = Attempt
    payload = ("traceback",)
    fields = readonly_fields = ("outcome", "cause", "worker", "started_at", "ended_at", "what_went_wrong")

    @admin.display(description="error")
    def what_went_wrong(self, attempt: Attempt) -> str:
        return harmless(attempt.error)


class CallInline(RowInline):
    model = Call
    payload = ("request", "answer", "partial", "error")
    fields = readonly_fields = (
        "state", "attempt", "model", "response_id", "input_tokens", "cached_tokens", "output_tokens",
        "reasoning_tokens", "reserved", "cost", "created_at", "settled_at",
    )  # fmt: skip


class WaitInline(RowInline):
    model = Wait
    payload = ("payload",)
    fields = readonly_fields = ("until", "opened_at", "closed_at", "closed_by")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("closed_by")


class EventInline(RowInline):
    model = Event
    fields = readonly_fields = ("at", "version", "what_happened", "by")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("by")

    @admin.display(description="what happened")
    def what_happened(self, event: Event) -> str:
        told = sentence(event)
        return f"{told.lead}{told.rest}"


@admin.register(Run)
class RunAdmin(RowAdmin):
    list_display = ("short_id", "title", "plan", "status", "waiting_for", "demo", "cost", "owner", "created_at")
    list_display_links = ("short_id", "title")
    list_filter = ("status", "waiting_for", PlanFilter)
    list_select_related = ("owner",)
    list_per_page = 50
    ordering = ("-created_at",)
    search_fields = ("title",)
    search_help_text = "A word of the title, or the start of an id (6 characters or more)."
    payload = ("task", "params")
    inlines = (StepInline, AttemptInline, CallInline, WaitInline, EventInline)
    actions = ("retry_runs", "cancel_runs", "pause_runs", "resume_runs")
    fieldsets = (
        (None, {"fields": ("id", "title", "task", "plan", "params", "model", "demo", "owner")}),
        (
            "Now",
            {"fields": ("status", "waiting_for", "reason", "at_path", "at_number", "wake_at", "deadline_at")},
        ),
        ("Money (USD)", {"fields": ("budget", "spent", "reserved", "unknown")}),
        ("Times", {"fields": ("created_at", "started_at", "ended_at", "cancel_requested_at", "cancel_requested_by")}),
        (
            "Claim",
            {"fields": ("fence", "worker", "lease_expires_at", "build", "version", "failures", "losses", "round")},
        ),
    )

    # --- how it is shown ------------------------------------------------------------------------------------------

    @admin.display(description="demo")
    def demo(self, run: Run) -> str:
        return "DEMO" if run.is_demo else "-"

    @admin.display(description="cost", ordering="spent")
    def cost(self, run: Run) -> str:
        return f"{usd(run.spent)} of {usd(run.budget)}"

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        by_title, may_repeat = super().get_search_results(request, queryset, search_term)
        return by_title | queryset.filter(id_begins(search_term)), may_repeat

    # --- what may be ordered --------------------------------------------------------------------------------------

    def has_retry_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("agentruns.retry_run"))

    def has_pause_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("agentruns.pause_run"))

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("agentruns.cancel_run"))

    @admin.action(permissions=["retry"], description="Retry this run", description_plural="Retry selected runs",
                  location=EVERYWHERE)  # fmt: skip
    def retry_runs(self, request: HttpRequest, queryset: QuerySet[Run]) -> None:
        def retry(run: Run) -> str:
            run.retry(by=request.user)
            return "Retried"

        self.order(request, queryset, retry, refused="Not retried")
        if queues.depth() is None:
            messages.warning(request, "Redis is down; the runs start when it is back.")

    @admin.action(permissions=["cancel"], description="Cancel this run", description_plural="Cancel selected runs",
                  location=EVERYWHERE)  # fmt: skip
    def cancel_runs(self, request: HttpRequest, queryset: QuerySet[Run]) -> None:
        def cancel(run: Run) -> str:
            return "Cancelled" if run.cancel(by=request.user) else "Told to stop at the next boundary"

        self.order(request, queryset, cancel, refused="Not cancelled")

    @admin.action(permissions=["pause"], description="Pause this run", description_plural="Pause selected runs",
                  location=EVERYWHERE)  # fmt: skip
    def pause_runs(self, request: HttpRequest, queryset: QuerySet[Run]) -> None:
        def pause(run: Run) -> str:
            return "Paused" if run.pause(by=request.user) else "Told to pause at the next boundary"

        self.order(request, queryset, pause, refused="Not paused")

    @admin.action(permissions=["pause"], description="Resume this run", description_plural="Resume selected runs",
                  location=EVERYWHERE)  # fmt: skip
    def resume_runs(self, request: HttpRequest, queryset: QuerySet[Run]) -> None:
        def resume(run: Run) -> str:
            run.resume(by=request.user)
            return "Resumed"

        self.order(request, queryset, resume, refused="Not resumed")

    def order(self, request: HttpRequest, queryset: QuerySet[Run], verb: Callable[[Run], str], *, refused: str) -> None:
        """Gives each run the order, logs who gave it, and says how many obeyed, and why others did not."""
        done: dict[str, int] = {}
        reasons: list[str] = []
        for run in queryset.order_by("created_at"):
            try:
                outcome = verb(run)
            except WrongState as refusal:
                reasons.append(str(refusal))
                continue
            self.log_change(request, run, f"{outcome}.")
            done[outcome] = done.get(outcome, 0) + 1
        for outcome, count in done.items():
            messages.success(request, f"{outcome}: {count} {'run' if count == 1 else 'runs'}.")
        if reasons:
            messages.warning(request, f"{refused}: {len(reasons)}. {' '.join(told(reasons))}")


def told(reasons: list[str]) -> Iterator[str]:
    yield from reasons[:REASONS_TOLD]
    if len(reasons) > REASONS_TOLD:
        yield f"And {len(reasons) - REASONS_TOLD} more."
