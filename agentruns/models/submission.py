"""How a run begins: checked input, one row, one key; the same key twice is the same run."""

import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Self

from django.conf import settings
from django.db import IntegrityError, InterfaceError, OperationalError, connection, transaction
from django.utils import timezone

from agentruns import encoding, pricing
from agentruns.errors import Refusal
from agentruns.models.key import IdempotencyKey
from agentruns.models.moment import now
from agentruns.models.provider import Price
from agentruns.models.telling import checked_notify
from agentruns.models.trait import Trait
from agentruns.plan import plans

TASK_BYTES = 256 * 1024
LARGEST_BUDGET = Decimal(100_000)
SMALLEST_BUDGET = Decimal("0.0001")
LONGEST_MINUTES = 366 * 24 * 60


def budget_of(value: Any) -> Decimal:
    """A budget in USD from what a person typed; raises Refusal with the remedy."""
    try:
        amount = Decimal(str(value).strip().removeprefix("$"))
    except InvalidOperation:
        raise Refusal(f"The budget {str(value)[:40]!r} is not an amount. Give USD, such as 5.00.") from None
    if not amount.is_finite() or amount <= 0:
        raise Refusal(f"The budget {str(value)[:40]} must be above zero. Give USD, such as 5.00.")
    if amount > LARGEST_BUDGET:
        raise Refusal(f"The budget ${str(value)[:40]} is over the limit of ${LARGEST_BUDGET:,} for one run.")
    if amount < SMALLEST_BUDGET:
        raise Refusal(f"The budget ${str(value)[:40]} is under ${SMALLEST_BUDGET}. Give USD, such as 5.00.")
    return amount.quantize(SMALLEST_BUDGET)


def default_model() -> str:
    """AGENT_MODEL, or the demo model where no provider is configured; raises Refusal when neither is."""
    if settings.AGENT_MODEL:
        return str(settings.AGENT_MODEL)
    if settings.AGENT_DEMO:
        return settings.DEMO_MODEL
    raise Refusal("A provider is configured but no model. Set AGENT_MODEL, or give a model with the run.")


def title_of(task: str) -> str:
    """The first line that says something, printable, at most 200 characters."""
    line = next((line.strip() for line in task.splitlines() if line.strip()), "")
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)[:200] or "(unprintable task)"


def checked_task(task: Any) -> str:
    if not isinstance(task, str) or not task.strip():
        raise Refusal("The task is empty. Say in a sentence or more what the run should do.")
    if (size := len(task.encode(errors="surrogatepass"))) > TASK_BYTES:
        raise Refusal(
            f"The task has {size:,} bytes; the limit is {TASK_BYTES:,}. "
            "Shorten it, or put the material where a step can fetch it."
        )
    try:
        encoding.dumps(task, exact=True)
    except encoding.NotStorable as error:
        raise Refusal(f"The task cannot be stored: {error}") from None
    return task


def checked_params(params: Any) -> dict[str, Any]:
    if params is None:
        return {}
    if not isinstance(params, dict):
        raise Refusal('The parameters must be a JSON object, such as {"language": "en"}.')
    try:
        size = len(encoding.dumps(params, exact=True))
    except encoding.NotStorable as error:
        raise Refusal(f"The parameters cannot be stored: {error}") from None
    if size > TASK_BYTES:
        raise Refusal(f"The parameters have {size:,} bytes; the limit is {TASK_BYTES:,}.")
    return params


def checked_model(model: Any) -> str:
    """A model with a price; the model is what its budget is kept by."""
    if not isinstance(model, str) or len(model) > 100 or not model.isprintable():
        raise Refusal("The model must be at most 100 printable characters, as its provider writes it.")
    pricing.price_of(model, Price.override(model))
    return model


def checked_key(key: Any) -> str:
    """What the submitter calls this submission; without one it is a new one each time."""
    if not isinstance(key, str | None):
        raise Refusal("The submission key must be a text.")
    key = (key or "").strip() or uuid.uuid4().hex
    if len(key) > 200 or not key.isprintable():
        raise Refusal("The submission key must be at most 200 printable characters.")
    return key


def deadline_in(minutes: Any) -> datetime | None:
    """When a run with this time limit is over; None for one without."""
    if minutes in (None, ""):
        return None
    try:
        limit = float(minutes)
    except (TypeError, ValueError):
        limit = -1.0
    if not 0 < limit <= LONGEST_MINUTES:
        raise Refusal(f"The time limit {str(minutes)[:40]!r} must be minutes, above 0 and at most {LONGEST_MINUTES:,}.")
    return timezone.now() + timedelta(minutes=limit)


class Submission(Trait):
    """start: from the form, the CLI and the API alike."""

    @classmethod
    def start(
        cls,
        plan: str,
        task: str,
        *,
        params: dict[str, Any] | None = None,
        budget: Any = None,
        key: str | None = None,
        model: str | None = None,
        owner: Any = None,
        priority: int = 0,
        minutes: float | None = None,
        notify: Iterable[str] = (),
    ) -> Self:
        """Starts a run of `plan`, committed before it is rung for; returns it.

        `budget`: USD, default the plan's, else AGENT_BUDGET_USD. `key`: the same key of the same owner with the same
        plan, task, params and model returns the run that it started. `minutes`: time limit. `notify`: "mail" tells its
        owner when it needs a person, fails, is completed, or has spent 80 % of its budget. Raises Refusal (a subclass
        for an unknown plan or price) with a sentence for the person; nothing is stored then.
        """
        declared = plans.get(plan)
        task, params = checked_task(task), checked_params(params)
        amount = budget_of(declared.budget or settings.AGENT_BUDGET_USD if budget in (None, "") else budget)
        run = cls(
            plan=declared.name, title=title_of(task), task=task, params=params, owner=owner, priority=priority,
            model=checked_model(model or default_model()), submission_key=checked_key(key),
            deadline_at=deadline_in(minutes), budget=amount, notify=checked_notify(notify, owner),
            at_path=declared.names[0], created_at=now(), enqueued_at=now(),
        )  # fmt: skip
        return run._insert_once()

    def _insert_once(self) -> Self:
        run: Any = self
        key = f"{run.owner_id or ''}:{run.submission_key}"
        fingerprint = encoding.fingerprint([run.plan, run.task, run.params, run.model])
        try:
            with transaction.atomic():
                run.save(force_insert=True)
                IdempotencyKey.objects.create(
                    scope="submission", key=key, run_id=run.pk, fingerprint=fingerprint, state="done", created_at=now()
                )
                run.record("started", by=run.owner, budget=str(run.budget))
                run.ring_after_commit(unrung="run-committed", rung="run-rung")
        except (IntegrityError, OperationalError, InterfaceError) as error:
            # Somebody was first with this key; or it was us, and the COMMIT's answer was lost.
            if not isinstance(error, IntegrityError):
                connection.close()
            earlier = IdempotencyKey.objects.filter(scope="submission", key=key).first()
            if earlier is None:
                raise
            if earlier.fingerprint != fingerprint:
                raise Refusal(
                    f"The submission key {run.submission_key[:40]!r} already started run {earlier.run_id} with other "
                    "input. Use a new key for a new run."
                ) from None
            return self.rows().get(pk=earlier.run_id)
        return self.rows().get(pk=run.pk)
