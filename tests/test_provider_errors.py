"""Every way a provider fails, and what may be done about it: the type of the exception is the answer."""

import traceback
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from agentruns.errors import (
    AgentRunsError,
    AnswerLost,
    BackgroundRefused,
    ModelError,
    ProviderBusy,
    ProviderStopped,
    Refused,
    ResponseGone,
)
from tests.misbehaving import (
    REQUEST,
    Misbehaving,
    answers,
    closes,
    failure_of,
    provider_at,
    response,
    streams,
)

CANARY = "sk-canary-do-not-print-me"


def error(code="", message="why", **more):
    return {"error": {"code": code, "message": message, "type": "invalid_request_error", "param": None} | more}


STATUSES = [
    (400, error("context_length_exceeded"), ModelError),
    (400, error("invalid_prompt"), Refused),
    (400, error("content_policy_violation"), Refused),
    (400, error("misalignment_policy_violation"), Refused),
    (400, {"error": {"code": 400, "message": "too long", "type": "exceed_context_size_error"}}, ModelError),
    (401, error("invalid_api_key"), ProviderStopped),
    (402, {"error": {"code": 402, "message": "Insufficient credits"}}, ProviderStopped),
    (403, error("unsupported_country_region_territory"), ProviderStopped),
    (403, error("model_not_found"), ModelError),
    (404, error("model_not_found", "The model `m-1` does not exist"), ModelError),
    (404, error("previous_response_not_found", param="previous_response_id"), ModelError),
    (404, {"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}}, ProviderStopped),
    (404, {"detail": "Not Found"}, ProviderStopped),
    (404, "<html><title>Not here</title></html>", ProviderStopped),
    (405, {"detail": "Method Not Allowed"}, ProviderStopped),
    (308, "", ProviderStopped),
    (413, "", ModelError),
    (422, error("bad_shape"), ModelError),
    (408, "", ProviderBusy),
    (409, error("conflict"), ProviderBusy),
    (429, error("rate_limit_exceeded", type="requests"), ProviderBusy),
    (429, error("slow_down"), ProviderBusy),
    (429, "", ProviderBusy),
    (429, error("", type="insufficient_quota"), ProviderStopped),
    (429, error("credit_balance_exhausted"), ProviderStopped),
    (429, error("organization_spend_limit_exceeded"), ProviderStopped),
    (429, error("project_spend_limit_exceeded"), ProviderStopped),
    (429, error("organization_usage_limit_exceeded"), ProviderStopped),
    (500, error("server_error"), ProviderBusy),
    (502, "<html>Bad gateway</html>", ProviderBusy),
    (503, error("server_is_overloaded"), ProviderBusy),
    (504, "<html>Gateway timeout</html>", AnswerLost),
    (524, "", AnswerLost),
]


@pytest.mark.parametrize(("status", "body", "expected"), STATUSES, ids=lambda value: str(value)[:60])
@pytest.mark.parametrize("background", [True, False])
def test_a_status_and_its_code_decide_what_may_be_done(status, body, expected, background):
    failure = failure_of(answers(status, body), background=background)
    assert type(failure) is expected
    assert str(status) in str(failure)
    assert "127.0.0.1:" in str(failure)
    assert "<" not in str(failure)


def test_a_final_no_carries_the_code_of_the_provider():
    assert failure_of(answers(400, error("context_length_exceeded"))).code == "context_length_exceeded"
    without = {"error": {"code": 400, "message": "too long", "type": "exceed_context_size_error"}}
    assert failure_of(answers(400, without)).code == "exceed_context_size_error"
    assert failure_of(answers(413, "")).code == "413"


@pytest.mark.parametrize(
    "refusal",
    [
        error(param="background"),
        error(message="Unsupported parameter: background"),
        error(message="no background mode"),
    ],
)
def test_a_400_that_names_background_is_no_failure_of_the_request(refusal):
    assert type(failure_of(answers(400, refusal), background=True)) is BackgroundRefused
    assert type(failure_of(answers(400, refusal), background=False)) is ModelError


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "20"}, 20),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "20"}, 0.25),
        ({"retry-after": "-3"}, 0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "Mon, 01 Jan 2024 00:00:00 GMT"}, 0),
        ({}, None),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_read_in_each_of_its_forms(status, headers, seconds):
    assert failure_of(answers(status, "", headers)).retry_after == seconds


def test_retry_after_as_a_date_is_the_seconds_until_then():
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    assert 80 < failure_of(answers(429, "", {"retry-after": later})).retry_after <= 90


def test_a_redirect_is_not_followed_with_a_prompt():
    with Misbehaving(answers(200, response())) as elsewhere:
        failure = failure_of(answers(307, "", {"location": f"{elsewhere.url}/responses"}))
    assert "OPENAI_BASE_URL" in str(failure)
    assert elsewhere.received == []


@pytest.mark.parametrize("status", [404, 410])
def test_a_response_that_is_not_there_any_more_is_gone(status):
    with Misbehaving(answers(status, error("not_found"))) as server, pytest.raises(ResponseGone):
        provider_at(server).retrieve("resp_1")


# --- the key ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "act",
    [
        answers(401, error("invalid_api_key", f"Incorrect API key provided: {CANARY}.")),
        answers(500, f"Authorization: Bearer {CANARY}"),
        answers(200, f"not JSON {CANARY}"),
        streams({"type": "error", "code": "x", "message": CANARY}),
        closes,
    ],
)
@pytest.mark.parametrize("background", [True, False])
def test_no_message_repr_or_traceback_contains_the_key(act, background):
    with Misbehaving(act) as server, pytest.raises(AgentRunsError) as caught:
        provider_at(server, CANARY).submit(replace(REQUEST, input="hello"), background=background)
    told = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + str(caught.value.args)
    assert "canary" not in told
