"""The client against the demo provider: what is booked here is what was billed there, to the last digit."""

import asyncio
import time
from dataclasses import replace
from decimal import Decimal

import pytest

from agentruns.errors import AnswerLost, BackgroundRefused, ProviderBusy, ProviderStopped, ResponseGone
from agentruns.exchange import Request
from agentruns.llm import Provider
from agentruns.pricing import DEMO, cost_of, worst
from tests.providers import DemoProvider

REQUEST = Request(
    model="demo",
    instructions="You write reports.",
    input="List the parts, one a line: heat pumps in old houses",
    max_output_tokens=2_000,
    metadata={"run": "r1", "path": "outline/ask"},
    idempotency_key="r1:outline/ask~1",
)


@pytest.fixture
def demo(tmp_path):
    demo = DemoProvider(tmp_path / "demo.sqlite3").start(speed=20)
    yield demo
    demo.stop()


def provider_of(demo):
    return Provider.at(demo.base_url, "demo")


def ended(provider, reply):
    until = time.monotonic() + 20
    while reply.is_open:
        assert time.monotonic() < until
        time.sleep(min(reply.poll_after or 0.1, 0.2))
        reply = provider.retrieve(reply.response_id)
    return reply


def usd(usage):
    tokens = {"input_tokens": usage.input, "cached_tokens": usage.cached}
    tokens |= {"output_tokens": usage.output, "reasoning_tokens": usage.reasoning}
    return cost_of("demo", **tokens, tier=usage.tier, override=DEMO)[0]


@pytest.mark.parametrize("background", [True, False])
def test_what_is_booked_is_what_was_billed_and_never_more_than_the_worst(demo, background):
    provider, told = provider_of(demo), []
    for topic in ("heat pumps", "gas boilers"):
        request = replace(REQUEST, input=f"List the parts, one a line: {topic}")
        reply = ended(provider, provider.submit(request, background=background, on_text=told.append))
        assert reply.text.count("\n") >= 2
        billed = demo.ledger()["calls"][-1]
        assert usd(reply.usage) == Decimal(billed["cost_usd"])
        assert billed["metadata"] == {"run": "r1", "path": "outline/ask"}
        most = worst("demo", input_bytes=len(str(request.body()).encode()), max_output_tokens=2_000, override=DEMO)
        assert usd(reply.usage) <= most
    assert bool(told) is not background


def test_a_background_call_outlives_the_provider_that_took_it(demo):
    provider = provider_of(demo)
    reply = provider.submit(REQUEST, background=True)
    assert reply.is_open
    assert reply.poll_after > 0
    demo.kill()
    with pytest.raises(ProviderBusy):
        provider.retrieve(reply.response_id)
    demo.start(speed=20)
    assert ended(provider, reply).status == "completed"
    assert demo.ledger()["generations"] == 1


def test_a_cancelled_call_is_booked_for_what_it_had_made(demo):
    provider = provider_of(demo)
    reply = provider.submit(replace(REQUEST, input="[demo: slow 30] Write it up"), background=True)
    reply = provider.cancel(reply.response_id)
    assert reply.status == "cancelled"
    assert usd(reply.usage) == Decimal(demo.ledger()["calls"][0]["cost_usd"])
    assert provider.cancel(reply.response_id).status == "cancelled"


def test_a_hundred_calls_in_flight_are_looked_at_together(demo):
    provider = provider_of(demo)
    replies = [provider.submit(replace(REQUEST, input=f"Part {number}"), background=True) for number in range(100)]
    began = time.monotonic()
    found = asyncio.run(provider.retrieve_many([reply.response_id for reply in replies]))
    assert {reply.response_id for reply in found.values()} == {reply.response_id for reply in replies}
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("fault", "background", "expected", "billed"),
    [
        ("429 retry-after=7", True, ProviderBusy, 0),
        ("503", False, ProviderBusy, 0),
        ("quota", True, ProviderStopped, 0),
        ("badkey", True, ProviderStopped, 0),
        ("forbidden", False, ProviderStopped, 0),
        ("reset", True, AnswerLost, 0),  # the client cannot know that it was not taken
        ("drop", True, AnswerLost, 1),
        ("garbage", True, AnswerLost, 1),
        ("truncate", True, AnswerLost, 1),
    ],
)
def test_each_fault_is_what_it_is(demo, fault, background, expected, billed):
    request = replace(REQUEST, input=f"[demo: {fault}] List the parts")
    with pytest.raises(expected) as caught:
        provider_of(demo).submit(request, background=background)
    assert demo.ledger()["generations"] == billed
    assert len(demo.ledger()["posts"]) == 1
    assert getattr(caught.value, "retry_after", 7) in {7, None}


@pytest.mark.parametrize("fault", ["unfinished", "error", "truncate"])
def test_a_stream_that_breaks_over_a_call_that_goes_on_is_not_paid_twice(demo, fault):
    provider = provider_of(demo)
    reply = provider.submit(replace(REQUEST, input=f"[demo: {fault}] List the parts"), background=False)
    assert ended(provider, reply).status == "completed"
    assert demo.ledger()["generations"] == 1


def test_an_answer_of_ten_megabytes_is_a_failure_with_its_usage(demo):
    request = replace(REQUEST, input="[demo: huge 11] Write it up", max_output_tokens=8_000_000)
    reply = ended(provider_of(demo), provider_of(demo).submit(request, background=True))
    assert (reply.status, reply.error_code) == ("failed", "answer_too_large")
    assert usd(reply.usage) == Decimal(demo.ledger()["calls"][0]["cost_usd"])


def test_a_response_that_expired_is_gone(demo):
    provider = provider_of(demo)
    reply = provider.submit(replace(REQUEST, input="[demo: gone] List the parts"), background=True)
    with pytest.raises(ResponseGone):
        ended(provider, reply)


def test_a_provider_without_background_mode_says_so_by_name(tmp_path):
    demo = DemoProvider(tmp_path / "demo.sqlite3").start(speed=20, background="off")
    try:
        with pytest.raises(BackgroundRefused):
            provider_of(demo).submit(REQUEST, background=True)
    finally:
        demo.stop()
