"""What was paid outside `ask`: booked as it is told, once an attempt."""

from typing import Any

from django.db import transaction
from django.utils import timezone

from agentruns import pricing
from agentruns.models.call import Call
from agentruns.models.moment import now
from agentruns.models.provider import Price


def book_usage(run: Any, path: str, top: str, attempt: int, model: str, input_tokens: int, output_tokens: int) -> None:
    """A settled Call of `model` at today's price, for this attempt of the step; the second time changes nothing.

    Raises UnknownPrice for a model that has none.
    """
    cost, price = pricing.cost_of(
        model, input_tokens=input_tokens, cached_tokens=0, output_tokens=output_tokens, reasoning_tokens=0, tier="",
        override=Price.override(model),
    )  # fmt: skip
    with transaction.atomic():
        run.lock()
        _, is_new = Call.objects.get_or_create(
            run=run, path=path, number=attempt,
            defaults={
                "top": top, "attempt": attempt, "ask": attempt, "round": run.round, "model": model,
                "provider": "outside", "key": f"{run.pk}:{path}", "state": "completed", "cost": cost,
                "price": {"input": str(price.input), "output": str(price.output)}, "price_source": price.source[:60],
                "input_tokens": input_tokens, "output_tokens": output_tokens, "reserved_on": timezone.now().date(),
                "created_at": now(), "settled_at": now(),
            },
        )  # fmt: skip
        if is_new:
            run.recount()
