"""What a call costs: the worst it can before it is sent, and exactly what it did once its usage is known.

Prices are USD per million tokens, always Decimal, and never fetched: a Price row (passed in as `override`), else
AGENT_PRICE for AGENT_MODEL, else the demo model's invented one, else the table inside the package genai-prices.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, ROUND_UP, Decimal
from typing import TYPE_CHECKING

from django.conf import settings

from agentruns.errors import UnknownPrice

if TYPE_CHECKING:
    from genai_prices.types import PriceCalculation

MILLION = Decimal(1_000_000)
PLACES = Decimal("1e-10")  # what the ledger's columns keep

# A tokenizer of bytes makes at most one token of a byte, and a request's JSON has many bytes a token. What a provider
# adds around it (roles, a preamble, the frame of a schema or tool) is in no byte of ours: this is room for that.
FRAME_TOKENS = 500

# genai-prices takes a tier it does not know for standard, silently; so only those it knows are passed on.
TIERS = ("default", "flex", "priority", "fast")
# A long completion window is cheaper by a factor (OpenAI's background guide); genai-prices does not know windows.
WINDOWS = {"2h": Decimal("0.7"), "8h": Decimal("0.6")}


@dataclass(frozen=True)
class Price:
    """USD per million tokens at the standard tier, below any long-context step: for people, and stored with a call.

    `cached` is None where no price for cached input is known: such tokens are then priced as any input.
    """

    input: Decimal
    output: Decimal
    cached: Decimal | None
    source: str


DEMO = Price(Decimal("1.00"), Decimal("4.00"), Decimal("0.10"), "demo (invented)")


def price_of(model: str, override: Price | None = None) -> Price:
    """The price of a model and where it comes from; raises UnknownPrice, which names the remedy."""
    return own_price(model, override) or table_price(model)


def cost_of(
    model: str,
    *,
    input_tokens: int,
    cached_tokens: int,
    output_tokens: int,
    reasoning_tokens: int,
    tier: str,
    cache_write_tokens: int = 0,
    override: Price | None = None,
) -> tuple[Decimal, Price]:
    """What a settled call cost in USD, and the price that was used.

    Cached and cache-write tokens are counted inside the input, reasoning inside the output. An unknown `tier` is priced
    as standard.
    """
    own = own_price(model, override)
    if own:
        cost = flat_cost(own, input_tokens, min(cached_tokens, input_tokens), output_tokens)
        return rounded(cost * WINDOWS.get(tier, Decimal(1))), own
    usage = {
        "input_tokens": input_tokens,
        "cache_read_tokens": min(cached_tokens, input_tokens),
        "cache_write_tokens": min(cache_write_tokens, max(0, input_tokens - cached_tokens)),
        "output_tokens": output_tokens,
        "output_reasoning_tokens": min(reasoning_tokens, output_tokens),
    }
    cost = table(model, tier, **usage).total_price
    return rounded(cost * WINDOWS.get(tier, Decimal(1))), table_price(model)


def worst(model: str, *, input_bytes: int, max_output_tokens: int, override: Price | None = None) -> Decimal:
    """The most that a request of `input_bytes` can cost in USD, whatever tier and cache the provider gives it."""
    tokens = input_bytes + FRAME_TOKENS
    own = own_price(model, override)
    if own:
        dearest = max(flat_cost(own, tokens, cached, max_output_tokens) for cached in (0, tokens))
    else:
        table_price(model)  # a model that is not priced by the token has no bound
        corners = [(tier, usage) for tier in ("", *TIERS) for usage in extremes(tokens, max_output_tokens)]
        dearest = max(table(model, tier, **usage).total_price for tier, usage in corners)
    return dearest.quantize(PLACES, rounding=ROUND_UP)


def extremes(input_tokens: int, output_tokens: int) -> Iterator[dict[str, int]]:
    """Cost is linear in how tokens split into fresh, cached, cache-written and reasoning: a corner is the dearest."""
    for cache in ({}, {"cache_read_tokens": input_tokens}, {"cache_write_tokens": input_tokens}):
        for reasoning in (0, output_tokens):
            yield {
                "input_tokens": input_tokens,
                "output_tokens": output_tokens,
                "output_reasoning_tokens": reasoning,
                **cache,
            }


def own_price(model: str, override: Price | None) -> Price | None:
    """A flat price that does not come from the package; it holds at every tier."""
    if override:
        return override
    if settings.AGENT_PRICE and model == settings.AGENT_MODEL:
        return Price(*settings.AGENT_PRICE, source="AGENT_PRICE")
    if settings.AGENT_DEMO and model == settings.DEMO_MODEL:
        return DEMO
    return None


def flat_cost(price: Price, input_tokens: int, cached_tokens: int, output_tokens: int) -> Decimal:
    cached = price.input if price.cached is None else price.cached
    fresh = input_tokens - cached_tokens
    return (fresh * price.input + cached_tokens * cached + output_tokens * price.output) / MILLION


def rounded(cost: Decimal) -> Decimal:
    return cost.quantize(PLACES, rounding=ROUND_HALF_EVEN)


def table_price(model: str) -> Price:
    """The package's price at the standard tier, below any long-context step."""
    from genai_prices import __version__

    prices = table(model, "", input_tokens=0, output_tokens=0).model_price
    fresh, cached, output = (
        value if value is None or isinstance(value, Decimal) else value.base
        for value in (prices.input_mtok, prices.cache_read_mtok, prices.output_mtok)
    )
    if fresh is None or output is None:  # priced by the minute, the image or the request: no bound can be kept
        raise UnknownPrice(model)
    return Price(fresh, output, cached, f"genai-prices {__version__}")


def table(model: str, tier: str, **usage: int) -> PriceCalculation:
    """The package's sum for `usage`: of the provider at OPENAI_BASE_URL if it knows that one, else of OpenAI."""
    from genai_prices import Usage, calc_price  # 0.8 s and a large table: only where a call is priced by it

    context = {"service_tier": tier} if tier in TIERS else None
    if settings.OPENAI_BASE_URL:
        with suppress(LookupError):  # a gateway of one's own: its models are taken for OpenAI's of the same name
            return calc_price(Usage(**usage), model, provider_api_url=settings.OPENAI_BASE_URL, price_context=context)
    try:
        return calc_price(Usage(**usage), model, provider_id="openai", price_context=context)
    except LookupError:
        raise UnknownPrice(model) from None
