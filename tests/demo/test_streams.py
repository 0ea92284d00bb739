"""The demo provider's streams, whole, cut and taken up again."""

import openai
import pytest

from tests.demo.conftest import TASK


def test_a_stream_brings_the_whole_text_in_numbered_events(shared):
    events = list(shared.client().responses.create(model="demo", input=TASK, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created"
    assert events[-1].type == "response.completed"
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == events[-1].response.output_text
    assert len(deltas) > 3


def test_the_clients_own_stream_reader_understands_it(shared):
    with shared.client().responses.stream(model="demo", input=TASK) as stream:
        stream.until_done()
        assert stream.get_final_response().status == "completed"


def test_a_stream_is_taken_up_after_the_event_that_was_seen_last_also_after_a_kill(own):
    client = own.start(speed=5).client()
    seen = []
    with pytest.raises(openai.APIConnectionError):
        for event in client.responses.create(model="demo", input=TASK, background=True, stream=True):
            seen.append(event)
            if event.sequence_number == 7:
                own.kill()
    own.start(speed=5)
    stream = own.client().responses.retrieve(seen[0].response.id, stream=True, starting_after=seen[-1].sequence_number)
    rest = list(stream)
    numbers = [event.sequence_number for event in seen + rest]
    assert numbers == list(range(len(numbers)))
    assert rest[-1].response.status == "completed"
    assert own.ledger()["generations"] == 1


def test_a_stream_ends_without_a_last_event_when_its_response_is_cancelled(own):
    client = own.start().client()
    types = []
    for event in client.responses.create(model="demo", input=TASK, background=True, stream=True):
        types.append(event.type)
        if event.type == "response.queued":
            client.responses.cancel(event.response.id)
    assert types == ["response.created", "response.queued"]


def test_only_a_young_response_that_was_streamed_can_be_streamed_again(own):
    own.start(speed=50, stream_life=0.01)
    client = own.client()
    plain = own.answer(TASK)
    streamed = list(client.responses.create(model="demo", input=TASK, background=True, stream=True))[-1].response
    for response, words in ((plain, "not created with stream"), (streamed, "can no longer be streamed")):
        with pytest.raises(openai.BadRequestError, match=words):
            client.responses.retrieve(response.id, stream=True)
