"""The same client against a provider that nobody here wrote: llmock, from PyPI, with its own ways to break."""

import pytest

from agentruns.errors import AnswerLost, ProviderBusy, ResponseGone
from agentruns.exchange import Request
from tests.foreign import llmock

REQUEST = Request(model="gpt-4o", input="Name three parts of a report.", max_output_tokens=200)


@pytest.fixture(scope="module")
def well():
    with llmock("--stream-chunk-delay-ms", "20") as (provider, _):
        yield provider


def test_a_streamed_call_brings_text_and_usage(well):
    told = []
    reply = well.submit(REQUEST, background=False, on_text=told.append)
    assert reply.status == "completed"
    assert reply.text.startswith(told[0])
    assert reply.usage.input > 0
    assert reply.usage.output > 0


def test_a_provider_without_background_answers_at_once_and_knows_no_ids(well):
    reply = well.submit(REQUEST, background=True)
    assert (reply.status, bool(reply.text)) == ("completed", True)
    with pytest.raises(ResponseGone):
        well.retrieve(reply.response_id)


@pytest.mark.parametrize("fault", ["disconnect", "truncate", "malformed"])
def test_a_broken_stream_is_a_lost_answer(fault):
    with llmock("--stream-fault", f"{fault}=1.0") as (provider, _), pytest.raises(AnswerLost):
        provider.submit(REQUEST, background=False)


@pytest.mark.parametrize("status", [429, 503])
def test_a_passing_status_is_busy_and_asked_once(status):
    with llmock("--error-rate", f"{status}=1.0") as (provider, requests):
        with pytest.raises(ProviderBusy):
            provider.submit(REQUEST, background=False)
        assert str(requests()).count("/v1/responses") == 1
