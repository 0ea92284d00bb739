"""The life of a response of the demo provider, its usage and its bill; over real HTTP with the official client."""

from decimal import Decimal

import openai
import pytest

from agentruns.demo import MARK
from tests.demo.conftest import TASK
from tests.providers import OPEN


def test_a_background_response_is_queued_then_works_then_completes_with_its_usage(own):
    client = own.start(speed=4).client()
    response = client.responses.create(model="demo", input=TASK, background=True, metadata={"run": "r1"})
    seen = [response.status]
    while (response := client.responses.retrieve(response.id)).status in OPEN:
        seen.append(response.status)
    usage = response.usage
    assert list(dict.fromkeys(seen)) == ["queued", "in_progress"]
    assert (response.status, response.metadata, response.service_tier) == ("completed", {"run": "r1"}, "default")
    assert 0 < usage.output_tokens_details.reasoning_tokens < usage.output_tokens
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    assert MARK in response.output_text


def test_an_open_response_says_when_to_ask_again(own):
    raw = own.start().client().responses.with_raw_response.create(model="demo", input=TASK, background=True)
    assert 1500 < int(raw.headers["openai-poll-after-ms"]) <= 5050


def test_a_killed_provider_completes_the_same_response_and_bills_it_once(own):
    client = own.start(speed=4).client()
    response = client.responses.create(model="demo", input=TASK, background=True)
    own.kill()
    own.start(speed=4)
    assert own.ended(response.id).status == "completed"
    ledger = own.ledger()
    assert [(call["id"], call["billed"], call["posts"]) for call in ledger["calls"]] == [(response.id, True, 1)]
    assert ledger["generations"] == 1


def test_the_ledger_costs_what_the_response_says_it_used(shared):
    usage = shared.answer(f"Price this: {TASK}").usage
    cached = usage.input_tokens_details.cached_tokens
    cost = Decimal(usage.input_tokens - cached) + Decimal("0.1") * cached + 4 * Decimal(usage.output_tokens)
    assert Decimal(shared.ledger()["calls"][-1]["cost_usd"]) == cost / 1_000_000


def test_cached_tokens_are_those_of_an_earlier_prompt_that_began_the_same(shared):
    rules = "Rules that never change. " * 40
    first, second = (shared.answer(question, instructions=rules).usage for question in ("One?", "Two?"))
    assert first.input_tokens_details.cached_tokens == 0
    assert 200 <= second.input_tokens_details.cached_tokens < second.input_tokens


def test_cancelling_twice_is_cancelling_once_and_only_what_was_made_is_billed(own):
    client = own.start().client()
    response = client.responses.create(model="demo", input=TASK, background=True)
    first, second = client.responses.cancel(response.id), client.responses.cancel(response.id)
    assert (first.status, second.status) == ("cancelled", "cancelled")
    assert first.usage == second.usage
    assert client.responses.retrieve(response.id).usage.output_tokens == own.billed(response.id)["output_tokens"]
    assert own.billed(response.id)["billed"]


def test_cancelling_a_completed_response_leaves_it_completed(shared):
    response = shared.answer(TASK)
    assert shared.client().responses.cancel(response.id).status == "completed"


def test_a_foreground_response_cannot_be_cancelled(shared):
    response = shared.client().responses.create(model="demo", input=TASK)
    with pytest.raises(openai.BadRequestError):
        shared.client().responses.cancel(response.id)


def test_a_response_is_not_found_when_unknown_deleted_unstored_or_expired(shared, own):
    client = shared.client()
    deleted = client.responses.create(model="demo", input=TASK)
    client.responses.delete(deleted.id)
    unstored = client.responses.create(model="demo", input=TASK, store=False)
    for response_id in ("resp_nobody", deleted.id, unstored.id):
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(response_id)
    own.start(speed=50, keep=0.01)
    with pytest.raises(openai.NotFoundError):
        own.answer(TASK)


def test_more_than_max_output_tokens_is_incomplete_and_paid_to_the_limit(shared):
    response = shared.answer(f"Write the report. Task: {TASK}", max_output_tokens=140)
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert response.usage.output_tokens == 140
    assert response.output_text


def test_reasoning_can_use_up_all_tokens_and_leave_no_text(shared):
    response = shared.answer(TASK, max_output_tokens=16)
    assert (response.status, response.output_text) == ("incomplete", "")
    assert response.usage.output_tokens_details.reasoning_tokens == 16


def test_a_conversation_goes_on_by_the_id_of_the_previous_response(shared):
    first = shared.answer(TASK)
    alone, second = shared.answer("And then?"), shared.answer("And then?", previous_response_id=first.id)
    assert second.usage.input_tokens > alone.usage.input_tokens + first.usage.input_tokens
    with pytest.raises(openai.BadRequestError) as error:
        shared.answer("And then?", previous_response_id="resp_nobody")
    assert error.value.code == "previous_response_not_found"


def test_input_tokens_are_counted_as_they_are_billed(shared):
    counted = shared.client().responses.input_tokens.count(model="demo", input=TASK, instructions="Be brief.")
    assert counted.input_tokens == shared.answer(TASK, instructions="Be brief.").usage.input_tokens
