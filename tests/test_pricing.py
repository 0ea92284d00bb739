"""What a call costs, to the last digit, and that what is reserved for it is never less."""

import subprocess
import sys
from decimal import Decimal

import pytest
from genai_prices.data_snapshot import get_snapshot
from hypothesis import example, given
from hypothesis import strategies as some

from agentruns import pricing
from agentruns.errors import UnknownPrice
from agentruns.pricing import Price, cost_of, price_of, worst

ASTRA = "gpt-6-astra"
OWN = Price(Decimal("3"), Decimal("12"), Decimal("0.3"), "Price row")


@pytest.fixture(autouse=True)
def a_real_provider(settings):
    settings.AGENT_DEMO, settings.AGENT_MODEL, settings.AGENT_PRICE, settings.OPENAI_BASE_URL = False, ASTRA, None, ""


def cost(model=ASTRA, *, input_tokens=0, cached=0, output=0, reasoning=0, tier="", **more):
    return cost_of(
        model,
        input_tokens=input_tokens,
        cached_tokens=cached,
        output_tokens=output,
        reasoning_tokens=reasoning,
        tier=tier,
        **more,
    )[0]


# --- the package's prices ---------------------------------------------------------------------------------------------


def test_the_price_of_a_known_model_names_the_package_and_its_version():
    price = price_of(ASTRA)
    assert (price.input, price.output, price.cached) == (Decimal(10), Decimal(50), Decimal(1))
    assert price.source.startswith("genai-prices 0.")


@pytest.mark.parametrize(
    ("usage", "usd"),
    [
        ({"input_tokens": 1_000, "output": 100}, "0.015"),
        ({"input_tokens": 1_000, "output": 100, "reasoning": 90}, "0.015"),
        ({"input_tokens": 1_000, "cached": 400, "output": 100}, "0.0114"),
        ({"input_tokens": 1_000, "cache_write_tokens": 1_000}, "0.0125"),
        ({"input_tokens": 272_000}, "2.72"),
        ({"input_tokens": 272_001}, "5.44002"),
        ({"input_tokens": 300_000}, "6.00"),
        ({"input_tokens": 300_000, "output": 1_000}, "6.075"),
        ({"input_tokens": 1_000, "output": 100, "tier": "flex"}, "0.0075"),
        ({"input_tokens": 1_000, "output": 100, "tier": "priority"}, "0.03"),
        ({"input_tokens": 1_000, "output": 100, "tier": "default"}, "0.015"),
        ({"input_tokens": 1_000, "output": 100, "tier": "2h"}, "0.0105"),
        ({"input_tokens": 1_000, "output": 100, "tier": "8h"}, "0.009"),
        ({}, "0"),
    ],
)
def test_a_call_costs_what_the_vendor_bills(usage, usd):
    assert cost(**usage) == Decimal(usd)


@pytest.mark.parametrize("tier", ["nonsense", "ultrafast", "batch", "FLEX", "auto", "scale"])
def test_a_tier_that_is_not_known_is_never_cheaper(tier):
    assert cost(input_tokens=1_000, output=100, tier=tier) == Decimal("0.015")


@pytest.mark.parametrize(
    "model", ["gpt-6.2-astra", "gpt-6-astra-oops", "smollm2", "", "text-embedding-3-small", "whisper-1"]
)
def test_a_model_without_a_price_per_token_is_refused_with_the_remedy(model):
    for ask in (price_of, cost, lambda model: worst(model, input_bytes=1, max_output_tokens=1)):
        with pytest.raises(UnknownPrice, match="AGENT_PRICE") as refused:
            ask(model)
        assert repr(model) in str(refused.value)


def test_usage_that_contradicts_itself_is_still_priced():
    assert cost(input_tokens=10, cached=99, cache_write_tokens=99, output=1, reasoning=99) == Decimal("0.00006")


def test_a_provider_that_the_package_knows_by_its_address_has_its_own_prices(settings):
    settings.OPENAI_BASE_URL = "https://api.groq.com/openai/v1"
    assert price_of("openai/gpt-oss-120b").output < 10
    settings.OPENAI_BASE_URL = ""
    with pytest.raises(UnknownPrice):
        price_of("openai/gpt-oss-120b")


def test_a_gateway_of_ones_own_has_the_prices_of_openai(settings):
    settings.OPENAI_BASE_URL = "http://litellm.internal:4000/v1"
    assert price_of(ASTRA).input == 10


def test_prices_come_without_the_network_and_without_the_package_until_they_are_asked_for():
    code = """if True:
        import socket, sys, django
        def refuse(*_): raise AssertionError("a price went to the network")
        socket.socket.connect = refuse
        django.setup()
        from agentruns import pricing
        assert "genai_prices" not in sys.modules
        print(pricing.price_of("gpt-6-astra").input)"""
    environment = {"DJANGO_SETTINGS_MODULE": "agentruns.settings", "SECRET_KEY": "x", "OPENAI_API_KEY": "k"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment | {"AGENT_MODEL": ASTRA},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "10\n", done.stderr


# --- prices of one's own ----------------------------------------------------------------------------------------------


def test_a_price_row_wins_over_the_setting_and_the_setting_over_the_package(settings):
    settings.AGENT_PRICE = Decimal("2"), Decimal("8"), None
    assert price_of(ASTRA).source == "AGENT_PRICE"
    assert price_of(ASTRA, OWN) == OWN
    assert price_of("gpt-6-sol").source.startswith("genai-prices")


def test_own_prices_without_one_for_cached_input_price_it_as_input(settings):
    settings.AGENT_PRICE = Decimal("2"), Decimal("8"), None
    assert cost(input_tokens=1_000_000, cached=400_000, output=100_000) == Decimal("2.80")
    settings.AGENT_PRICE = Decimal("2"), Decimal("8"), Decimal("0.5")
    assert cost(input_tokens=1_000_000, cached=400_000, output=100_000) == Decimal("2.20")


def test_own_prices_hold_for_a_model_that_nobody_knows():
    assert cost("smollm2", input_tokens=1_000_000, cached=1_000_000, output=1_000_000, override=OWN) == Decimal("12.3")


def test_a_price_of_zero_is_a_price():
    free = Price(Decimal(0), Decimal(0), None, "Price row")
    assert cost("smollm2", input_tokens=5_000, output=5_000, override=free) == 0
    assert worst("smollm2", input_bytes=5_000, max_output_tokens=5_000, override=free) == 0


def test_the_demo_model_has_an_invented_price_that_says_so_and_only_while_it_is_the_demo(settings):
    with pytest.raises(UnknownPrice):
        price_of("demo")
    settings.AGENT_DEMO = True
    assert price_of("demo").source == "demo (invented)"
    assert cost("demo", input_tokens=1_000, cached=200, output=500) == Decimal("0.00282")


def test_a_cost_fits_the_column_of_the_ledger():
    odd = Price(Decimal("0.123456789"), Decimal("0.1"), None, "Price row")
    assert cost("m", input_tokens=7, override=odd) == Decimal("8.642E-7")
    assert cost("m", input_tokens=7, override=odd).as_tuple().exponent >= -10


# --- the worst --------------------------------------------------------------------------------------------------------


def test_the_worst_of_a_short_call_stays_below_the_long_context_price():
    short = worst(ASTRA, input_bytes=10_000, max_output_tokens=1_000)
    assert short == (10_500 * Decimal(25) + 1_000 * Decimal(100)) / 1_000_000  # all written to the cache, at priority


def test_the_worst_holds_for_every_model_that_the_package_prices_by_the_token():
    (openai,) = (one for one in get_snapshot().providers if one.id == "openai")
    known = 0
    for model in (one.id for one in openai.models):
        try:
            most = worst(model, input_bytes=300_000, max_output_tokens=10_000)
        except UnknownPrice:
            continue
        known += 1
        for tier in ("", *pricing.TIERS):
            assert most >= cost(model, input_tokens=300_500, output=10_000, reasoning=10_000, tier=tier) > 0
    assert known > 50


TOKENS = some.integers(0, 600_000)
OWN_PRICES = some.builds(
    Price,
    some.decimals(0, 1_000, places=6),
    some.decimals(0, 1_000, places=6),
    some.none() | some.decimals(0, 1_000, places=6),
    some.just("Price row"),
)
MODELS = ["gpt-6-astra", "gpt-6-sol", "gpt-6.1-sol", "gpt-5.6-sol", "gpt-5", "o3", "gpt-4o-mini"]


@given(
    model=some.sampled_from(MODELS),
    override=some.none() | OWN_PRICES,
    input_bytes=TOKENS,
    max_output_tokens=some.integers(1, 128_000),
    tier=some.sampled_from(["", "default", "flex", "priority", "fast", "2h", "8h", "ultrafast"]),
    shares=some.tuples(*[some.floats(0, 1)] * 5),
)
@example("gpt-6-astra", None, 272_000, 1_000, "priority", (1, 0, 1, 1, 1))
def test_no_usage_within_its_bound_costs_more_than_the_worst(
    model, override, input_bytes, max_output_tokens, tier, shares
):
    most = worst(model, input_bytes=input_bytes, max_output_tokens=max_output_tokens, override=override)
    input_tokens = round((input_bytes + pricing.FRAME_TOKENS) * shares[0])
    cached = round(input_tokens * shares[1])
    output = round(max_output_tokens * shares[3])
    assert most >= cost(
        model,
        input_tokens=input_tokens,
        cached=cached,
        cache_write_tokens=round((input_tokens - cached) * shares[2]),
        output=output,
        reasoning=round(output * shares[4]),
        tier=tier,
        override=override,
    )
