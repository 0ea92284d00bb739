"""What a provider's answer is read as, from one that keeps to the book and from those that do not."""

import pytest

from agentruns.exchange import ANSWER_BYTES, Usage, read_reply, read_usage
from tests.misbehaving import Misbehaving, answers, ask, created, deltas, ended, message, response, streams


def test_a_provider_that_ignores_background_answers_at_once_and_the_answer_counts():
    with Misbehaving(answers(200, response("Whole"))) as server:
        reply = ask(server, background=True)
    assert (reply.status, reply.text, reply.is_open) == ("completed", "Whole", False)


def test_a_provider_that_ignores_stream_answers_whole_and_the_answer_counts():
    with Misbehaving(answers(200, response("Whole"))) as server:
        assert ask(server).text == "Whole"


def test_a_llama_like_stream_is_read_without_sequence_numbers_and_with_created_repeated():
    frames = [frame for delta in deltas("Hel", "lo") for frame in (created(None), delta)]
    answer = response("Hello", usage={"input_tokens": 7, "output_tokens": 2, "output_tokens_details": None})
    with Misbehaving(streams(*frames, ended(answer))) as server:
        reply = ask(server)
    assert (reply.text, reply.response_id) == ("Hello", "resp_1")
    assert reply.usage == Usage(input=7, cached=0, output=2, reasoning=0, tier="")


def test_keepalives_comments_and_events_of_next_month_are_passed_over():
    odd = [
        'data: {"type": "keepalive"}\n\n',
        ": ping\n\n",
        "data: 5\n\n",
        "data: null\n\n",
        {"type": "response.dreaming"},
    ]
    with Misbehaving(streams(*odd, created(), *deltas("Hello"), *odd, ended(response()))) as server:
        assert ask(server).text == "Hello"


def test_a_last_event_without_output_is_filled_from_the_deltas():
    with Misbehaving(streams(created(), *deltas("Hel", "lo"), ended(response(None)))) as server:
        assert ask(server).text == "Hello"


def test_a_last_event_without_output_is_filled_from_the_finished_items():
    call = {"type": "function_call", "call_id": "c1", "name": "search", "arguments": "{}"}
    item = {"type": "response.output_item.done", "item": call}
    with Misbehaving(streams(created(), item, ended(response(None)))) as server:
        reply = ask(server)
    assert (reply.tool_calls, reply.text) == ([call], "")


def test_an_incomplete_answer_keeps_its_text_its_reason_and_its_usage():
    answer = response("Hel", "incomplete", incomplete_details={"reason": "max_output_tokens"})
    with Misbehaving(streams(created(), ended(answer))) as server:
        reply = ask(server)
    assert (reply.status, reply.text, reply.incomplete_reason) == ("incomplete", "Hel", "max_output_tokens")
    assert reply.usage.output == 20


def test_a_refusal_is_not_taken_for_text():
    refusal = message({"type": "refusal", "refusal": "I cannot help with that."})
    with Misbehaving(streams(*deltas("I can"), ended(response(None, output=[refusal])))) as server:
        reply = ask(server)
    assert (reply.text, reply.refusal) == ("", "I cannot help with that.")


@pytest.mark.parametrize(
    ("code", "passing", "policy"),
    [
        ("server_error", True, False),
        ("rate_limit_exceeded", True, False),
        ("bio_policy", False, True),
        ("misalignment_policy_violation", False, True),
        ("invalid_prompt", False, True),
        ("invalid_image", False, False),
    ],
)
def test_a_failed_response_says_whether_the_same_may_be_sent_again(code, passing, policy):
    answer = response(None, "failed", error={"code": code, "message": "why"}, usage=None)
    with Misbehaving(streams(created(), ended(answer))) as server:
        reply = ask(server)
    assert (reply.status, reply.error_code, reply.error) == ("failed", code, "why")
    assert (reply.error_is_passing, reply.error_is_policy) == (passing, policy)


def test_an_answer_too_large_to_keep_is_a_failure_that_still_says_what_it_used():
    with Misbehaving(streams(created(), ended(response("x" * (ANSWER_BYTES + 1))))) as server:
        reply = ask(server)
    assert (reply.status, reply.error_code, reply.text) == ("failed", "answer_too_large", "")
    assert reply.usage.input == 100
    assert "output" not in reply.body


def test_an_answer_of_just_under_the_limit_is_kept():
    with Misbehaving(streams(created(), ended(response("x" * ANSWER_BYTES)))) as server:
        assert len(ask(server).text) == ANSWER_BYTES


@pytest.mark.parametrize(
    "usage", [None, {}, [], "many", {"input_tokens": None}, {"input_tokens": -5, "output_tokens": True}]
)
def test_usage_that_is_none_is_none(usage):
    assert read_usage({"usage": usage}) is None


def test_no_tokens_are_believed_of_a_call_that_was_cancelled_and_not_of_an_answer():
    none = {"input_tokens": 0, "output_tokens": 0}
    assert read_usage({"usage": none, "status": "completed"}) is None
    assert read_usage({"usage": none, "status": "cancelled"}) == Usage(
        input=0, cached=0, output=0, reasoning=0, tier=""
    )


def test_usage_details_never_exceed_what_they_are_part_of():
    details = {"input_tokens_details": {"cached_tokens": 99}, "output_tokens_details": {"reasoning_tokens": 99}}
    usage = read_usage({"usage": {"input_tokens": 10, "output_tokens": 3, **details}, "service_tier": "flex"})
    assert usage == Usage(input=10, cached=10, output=3, reasoning=3, tier="flex")


def test_a_status_of_next_month_is_still_open_and_an_answer_without_one_is_complete():
    assert read_reply(response(status="pausing")).is_open
    without = response()
    del without["status"]
    assert read_reply(without).status == "completed"
