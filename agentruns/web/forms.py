"""The form that starts a run. Its checks are the verbs' own, worded for the field they are about."""

import json
import uuid
from decimal import Decimal, InvalidOperation
from typing import Any

from django import forms

from agentruns.errors import Refusal
from agentruns.models import Run
from agentruns.models.outbox import MAIL
from agentruns.models.submission import budget_of, checked_params, checked_task
from agentruns.plan import plans

LONGEST_MINUTES = 60 * 24 * 30


class NewRun(forms.Form):
    """plan, task, params, budget (USD), minutes, whether to mail, and the key that makes pressing twice one run."""

    plan = forms.CharField(required=False)
    task = forms.CharField(required=False, strip=False)
    params = forms.CharField(required=False, strip=False)
    budget = forms.CharField(required=False)
    minutes = forms.CharField(required=False)
    mail = forms.BooleanField(required=False)
    submission_key = forms.CharField(required=False, max_length=200)

    def clean_plan(self) -> str:
        name = self.cleaned_data["plan"] or next(iter(plans.all()), "")
        return str(_refused(plans.get, name).name)

    def clean_task(self) -> str:
        # A textarea sends CRLF; the same task from the command line has LF, and must be the same submission.
        return str(_refused(checked_task, self.cleaned_data["task"].replace("\r\n", "\n")))

    def clean_params(self) -> dict[str, Any]:
        text = self.cleaned_data["params"].strip()
        if not text:
            return {}
        try:
            params = json.loads(text)
        except json.JSONDecodeError as error:
            raise forms.ValidationError(
                f"This is not JSON: {error.msg} at line {error.lineno}, column {error.colno}. "
                'Give an object, such as {"language": "en"}, or leave it empty.'
            ) from None
        except (ValueError, RecursionError) as error:
            raise forms.ValidationError(f"This JSON cannot be used: {error}.") from None
        return dict(_refused(checked_params, params))

    def clean_budget(self) -> Decimal | None:
        text = self.cleaned_data["budget"]
        return _refused(budget_of, text) if text else None

    def clean_minutes(self) -> float | None:
        text = self.cleaned_data["minutes"]
        if not text:
            return None
        try:
            minutes = Decimal(text)
        except InvalidOperation:
            minutes = Decimal(-1)
        if minutes.is_finite() and 0 < minutes <= LONGEST_MINUTES:
            return float(minutes)
        raise forms.ValidationError(
            f"{text[:40]!r} is no time limit. Give minutes above zero, at most {LONGEST_MINUTES:,}, or leave it empty."
        )

    def start(self, owner: Any) -> Run | None:
        """The run that this form asks for: the same one for the same key. None: there are errors to show."""
        if not self.is_valid():
            return None
        wanted = self.cleaned_data
        try:
            return Run.start(
                wanted["plan"], wanted["task"], params=wanted["params"], budget=wanted["budget"],
                minutes=wanted["minutes"], key=wanted["submission_key"] or None, owner=owner,
                notify=[MAIL] if wanted["mail"] else [],
            )  # fmt: skip
        except Refusal as refusal:
            self.add_error(None, str(refusal))
            return None

    @property
    def fresh_key(self) -> str:
        """For the page that shows this form: a key no run has been started under."""
        return uuid.uuid4().hex


def draft_of(run: Run) -> NewRun:
    """The form filled with what `run` was started with, for running it again."""
    params = json.dumps(run.params, ensure_ascii=False, indent=2) if run.params else ""
    return NewRun(initial={"plan": run.plan, "task": run.task, "params": params, "budget": f"{run.budget:.2f}"})


def _refused(check: Any, value: Any) -> Any:
    try:
        return check(value)
    except Refusal as refusal:
        raise forms.ValidationError(str(refusal)) from None
