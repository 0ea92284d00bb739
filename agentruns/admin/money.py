"""The two tables that people fill in: what a model costs, and what a day may."""

from decimal import Decimal
from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest

from agentruns.models import Day, Price


def not_negative(amount: Decimal | None) -> Decimal | None:
    if amount is not None and amount < 0:
        raise forms.ValidationError("Give an amount of 0 or more.")
    return amount


class PriceForm(forms.ModelForm):
    class Meta:
        model = Price
        fields = ("model", "input", "output", "cached")
        help_texts = {
            "model": "As the provider names it, and as AGENT_MODEL does.",
            "input": "USD per million tokens.",
            "output": "USD per million tokens, reasoning included.",
            "cached": "USD per million cached input tokens; empty: as any input.",
        }

    def clean_model(self) -> str:
        return str(self.cleaned_data["model"]).strip()

    def clean_input(self) -> Decimal | None:
        return not_negative(self.cleaned_data["input"])

    def clean_output(self) -> Decimal | None:
        return not_negative(self.cleaned_data["output"])

    def clean_cached(self) -> Decimal | None:
        return not_negative(self.cleaned_data["cached"])


@admin.register(Price)
class PriceAdmin(admin.ModelAdmin):
    """Holds for calls made from now on: a call keeps the price that it was made at."""

    form = PriceForm
    list_display = ("model", "input", "output", "cached", "changed_at")


class DayForm(forms.ModelForm):
    class Meta:
        model = Day
        fields = ("date", "owner", "budget")
        help_texts = {
            "date": "A day in UTC.",
            "owner": "Empty: the budget of all together.",
            "budget": "USD; empty: AGENT_DAILY_BUDGET_USD.",
        }

    def clean_budget(self) -> Decimal | None:
        return not_negative(self.cleaned_data["budget"])


@admin.register(Day)
class DayAdmin(admin.ModelAdmin):
    form = DayForm
    list_display = ("date", "owner", "budget")
    list_select_related = ("owner",)
    ordering = ("-date",)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Which day it is of does not change: reservations lock it by that."""
        return ("date", "owner") if obj else ()

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
