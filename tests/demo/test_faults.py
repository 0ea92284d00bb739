"""Failures of the demo provider on request: what the client sees, and what is billed."""

import json
import time

import openai
import pytest

from tests.demo.conftest import TASK

REFUSALS = {
    "429 retry-after=2": (openai.RateLimitError, "rate_limit_exceeded"),
    "quota": (openai.RateLimitError, "credit_balance_exhausted"),
    "badkey": (openai.AuthenticationError, "invalid_api_key"),
    "forbidden": (openai.PermissionDeniedError, "permission_denied"),
    "nomodel": (openai.NotFoundError, "model_not_found"),
    "400": (openai.BadRequestError, "invalid_prompt"),
    "500": (openai.InternalServerError, "server_error"),
    "503": (openai.InternalServerError, "server_is_overloaded"),
}


@pytest.mark.parametrize("fault", REFUSALS)
def test_a_refused_request_names_its_error_and_is_not_billed(shared, fault):
    before = shared.ledger()["generations"]
    kind, code = REFUSALS[fault]
    with pytest.raises(kind) as error:
        shared.answer(f"{TASK} [demo: {fault}]")
    assert error.value.code == code
    assert error.value.response.headers.get("retry-after") == ("2" if "retry-after" in fault else None)
    assert shared.ledger()["generations"] == before
    assert shared.ledger()["posts"][-1]["answer"] == fault.split()[0]


def test_a_reset_loses_the_request_and_a_drop_only_the_answer(shared):
    before = shared.ledger()["generations"]
    for fault, more in (("reset", 0), ("drop", 1)):
        with pytest.raises(openai.APIConnectionError):
            shared.answer(f"{TASK} [demo: {fault}]")
        assert shared.ledger()["generations"] == before + more
    lost = shared.ledger()["calls"][-1]
    assert shared.ended(lost["id"]).status == "completed"


def test_a_failed_generation_names_its_error_and_its_input_is_billed(shared):
    response = shared.answer(f"{TASK} [demo: fail rate_limit_exceeded]")
    assert (response.status, response.error.code) == ("failed", "rate_limit_exceeded")
    call = shared.billed(response.id)
    assert (call["billed"], call["output_tokens"]) == (True, 0)
    assert call["input_tokens"] == response.usage.input_tokens > 0


def test_an_outcome_can_be_cut_refused_empty_or_without_usage(shared):
    cut = shared.answer(f"{TASK} [demo: incomplete]")
    assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert cut.output_text
    refused = shared.answer(f"{TASK} [demo: refuse]")
    assert (refused.status, refused.output[-1].content[0].type) == ("completed", "refusal")
    assert shared.answer(f"{TASK} [demo: empty]").output == []
    assert shared.answer(f"{TASK} [demo: nousage]").usage is None
    assert len(shared.answer(f"{TASK} [demo: huge 2]").output_text) > 2 * 2**20


def test_a_slow_response_takes_its_seconds_and_a_stuck_one_stays_queued_unbilled(shared):
    began = time.monotonic()
    shared.answer(f"{TASK} [demo: slow 0.5]")
    assert time.monotonic() - began >= 0.5
    stuck = shared.client().responses.create(model="demo", input=f"{TASK} [demo: stuck]", background=True)
    assert (stuck.status, shared.billed(stuck.id)["billed"]) == ("queued", False)
    assert shared.client().responses.cancel(stuck.id).status == "cancelled"


def test_a_gone_response_is_billed_and_not_found(shared):
    response = shared.client().responses.create(model="demo", input=f"{TASK} [demo: gone]", background=True)
    with pytest.raises(openai.NotFoundError):
        shared.client().responses.retrieve(response.id)
    assert shared.billed(response.id)["billed"]


@pytest.mark.parametrize("fault", ["garbage", "truncate", "hang 5"])
def test_a_hurt_reply_reaches_the_client_as_no_response(shared, fault):
    before = shared.ledger()["generations"]
    with pytest.raises((openai.APIError, ValueError)):
        shared.client(timeout=0.3).responses.create(model="demo", input=f"{TASK} [demo: {fault}]", background=True)
    assert shared.ledger()["generations"] == before + 1


def test_a_dripping_reply_outlasts_a_read_timeout_and_arrives_whole(shared):
    prompt = f"{TASK} [demo: drip 0.6 on=retrieve]"
    response = shared.client().responses.create(model="demo", input=prompt, background=True)
    began = time.monotonic()
    assert shared.client(timeout=0.3).responses.retrieve(response.id).id == response.id
    assert time.monotonic() - began > 0.5


def test_a_hurt_stream_breaks_errs_or_ends_without_its_last_event(shared):
    def types(fault):
        stream = shared.client().responses.create(model="demo", input=f"{TASK} [demo: {fault}]", stream=True)
        return [event.type for event in stream]

    assert types("keepalive")[0] == "keepalive"
    assert types("unfinished")[-1] == "response.output_text.delta"
    assert types("error")[-1] == "error"
    with pytest.raises(openai.APIConnectionError):
        types("truncate")
    with pytest.raises(json.JSONDecodeError):
        types("garbage")


def test_a_directive_strikes_as_often_as_it_says_for_each_run_and_after_a_restart(own):
    prompt = f"{TASK} [demo: 500 times=2]"
    own.start(speed=50)
    for run in ("one", "two"):
        with pytest.raises(openai.InternalServerError):
            own.answer(prompt, metadata={"run": run})
    own.kill()
    own.start(speed=50)
    with pytest.raises(openai.InternalServerError):
        own.answer(prompt, metadata={"run": "one"})
    assert own.answer(prompt, metadata={"run": "one"}).status == "completed"


def test_a_fault_set_by_a_test_strikes_the_prompts_that_match_it(own):
    own.start(speed=50).fault("503", times=1, match="heat pumps")
    assert own.answer("Something else").status == "completed"
    with pytest.raises(openai.InternalServerError):
        own.answer(TASK)
    assert own.answer(TASK).status == "completed"
    own.fault("500", on="retrieve")
    with pytest.raises(openai.InternalServerError):
        own.answer(TASK)
    own.clear_faults()
    assert own.faults() == []
    assert own.answer(TASK).status == "completed"


def test_an_unknown_fault_is_an_error_that_lists_the_faults(shared):
    with pytest.raises(openai.BadRequestError, match=r"No fault is called 'oops'.*quota"):
        shared.answer(f"{TASK} [demo: oops]")
