"""Addresses that are told of runs, and what was told to whom."""

from typing import Any
from urllib.parse import urlsplit

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from agentruns.admin.looking import RowAdmin
from agentruns.models import Hook, Outbox
from agentruns.models.moment import now
from agentruns.models.outbox import BUDGET, COMPLETED, FAILED, NEEDS_YOU

WORDS = {
    NEEDS_YOU: "A run needs a person",
    FAILED: "A run failed",
    COMPLETED: "A run is completed",
    BUDGET: "80 % of a run's budget is spent",
}


class HookForm(forms.ModelForm):
    kinds = forms.MultipleChoiceField(
        choices=list(WORDS.items()), widget=forms.CheckboxSelectMultiple, label="Is told when", initial=list(WORDS)
    )

    class Meta:
        model = Hook
        fields = ("url", "kinds", "owner", "is_active", "generation")
        help_texts = {"url": "https, or http within your own network. No redirect is followed."}

    def clean_url(self) -> str:
        url = str(self.cleaned_data["url"]).strip()
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise forms.ValidationError("Give a whole address, such as https://example.com/hooks/agentruns.")
        if parts.username or parts.password:
            raise forms.ValidationError("Leave name and password out of the address; the signature says who sends.")
        return url


@admin.register(Hook)
class HookAdmin(admin.ModelAdmin):
    """Each is signed as Standard Webhooks are, with a secret of its own."""

    form = HookForm
    list_display = ("url", "owner", "is_active", "created_at")
    list_select_related = ("owner",)
    readonly_fields = ("signing_secret",)

    @admin.display(description="Signing secret")
    def signing_secret(self, hook: Hook) -> str:
        return hook.secret if hook.pk else "Shown when it is saved."


@admin.register(Outbox)
class OutboxAdmin(RowAdmin):
    """What was told; what could not be is sent again by an action."""

    list_display = ("kind", "channel", "target", "run", "created_at", "sent_at", "tries", "error")
    list_filter = ("kind", "channel")
    list_select_related = ("run",)
    ordering = ("-created_at",)
    actions = ("send_again",)

    @admin.action(description="Send what did not arrive again", permissions=["send"])
    def send_again(self, request: HttpRequest, rows: QuerySet[Any]) -> None:
        count = rows.filter(sent_at=None).update(send_at=now())
        self.message_user(request, f"{count} will be sent within seconds; what had arrived is not sent again.")

    def has_send_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("agentruns.change_hook")
