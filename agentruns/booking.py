"""From what a provider said to what the ledger books: the same for a worker and for the clock."""

from dataclasses import replace
from decimal import Decimal

from agentruns import pricing
from agentruns.errors import UnknownPrice
from agentruns.llm import Reply, Usage
from agentruns.models import Call, Price
from agentruns.models.ledger import Booking


def booking_of(call: Call, reply: Reply) -> Booking:
    """How `reply`, a terminal one, ends `call`: its state, tokens and cost at the price that it was made at.

    Without usage the call is booked at its reservation (an upper bound), but for a failure, which is not billed.
    """
    ending = Booking(
        state=reply.status,
        response_id=reply.response_id,
        answer={
            "text": reply.text,
            "refusal": reply.refusal,
            "tool_calls": reply.tool_calls,
            "model": reply.model,
            "incomplete": reply.incomplete_reason,
        },
        error=reply.error,
        code=reply.error_code[:80],
        passing=reply.error_is_passing,
    )
    if reply.usage is not None:
        return priced(ending, call, reply.usage)
    if reply.status == "failed":
        return ending
    return replace(ending, cost=None, price_source="no usage came: booked at its reservation")


def priced(ending: Booking, call: Call, usage: Usage) -> Booking:
    """With tokens and what they cost; a price that was taken away meanwhile leaves it at its reservation."""
    used = replace(
        ending,
        input_tokens=usage.input,
        cached_tokens=usage.cached,
        output_tokens=usage.output,
        reasoning_tokens=usage.reasoning,
        tier=usage.tier[:24],
    )
    try:
        cost, price = pricing.cost_of(
            call.model,
            input_tokens=usage.input,
            cached_tokens=usage.cached,
            output_tokens=usage.output,
            reasoning_tokens=usage.reasoning,
            cache_write_tokens=usage.cache_write,
            tier=usage.tier,
            override=agreed(call) or Price.override(call.model),
        )
    except UnknownPrice:
        return replace(used, cost=None, price_source="the price is gone: booked at its reservation")
    return replace(used, cost=cost, price=stored(price), price_source=price.source[:60])


def agreed(call: Call) -> pricing.Price | None:
    """The flat price that the call was reserved at; a dearer one that came since would pass the budget.

    None for a table's, which hangs on tier and length, too, and is asked again.
    """
    if not call.price or call.price_source.startswith("genai-prices"):
        return None
    cached = call.price.get("cached")
    return pricing.Price(
        Decimal(call.price["input"]),
        Decimal(call.price["output"]),
        None if cached is None else Decimal(cached),
        call.price_source,
    )


def stored(price: pricing.Price) -> dict[str, str]:
    """A price as a call keeps it: USD per million tokens, as text."""
    shown = {"input": str(price.input), "output": str(price.output)}
    return shown if price.cached is None else shown | {"cached": str(price.cached)}


def refusal_of(
    error: BaseException, *, code: str = "", passing: bool = False, retry_after: float | None = None
) -> Booking:
    """A POST that was refused, or not sent: nothing was generated, nothing is paid."""
    return Booking(
        state="failed",
        error=str(error)[:2000],
        code=(code or getattr(error, "code", ""))[:80],
        passing=passing,
        retry_after=retry_after,
    )
