"""A streamed call while it lasts: its text as it grows, and the ways in which it is cut short."""

import threading
import time
from itertools import pairwise

import pytest

from agentruns import llm
from agentruns.errors import AnswerLost, ProviderBusy
from agentruns.wire import Line
from tests.misbehaving import (
    REQUEST,
    Misbehaving,
    answers,
    ask,
    created,
    deltas,
    drips,
    hangs,
    provider_at,
    response,
    streams,
)


def test_text_is_told_as_it_grows_and_at_most_every_two_seconds(monkeypatch):
    monkeypatch.setattr(llm, "TEXT_EVERY_SECONDS", 0.05)
    told = []

    def slowly(caller):
        for delta in "abcdefghij":
            caller.send(f'data: {{"type": "response.output_text.delta", "delta": "{delta}"}}\n\n')
            caller.let_go.wait(0.02)
        caller.send('data: {"type": "response.completed", "response": {"id": "resp_1"}}\n\n')

    with Misbehaving(streams(created(), then=slowly)) as server:
        reply = ask(server, on_text=told.append)
    assert reply.text == "abcdefghij"
    assert told[0] == "a"
    assert 2 <= len(told) <= 6
    assert all(later.startswith(earlier) for earlier, later in pairwise(told))


def test_what_on_text_raises_leaves_as_it_is_and_hangs_up():
    def stop(text):
        raise ValueError("the database said no")

    with (
        Misbehaving(streams(created(), *deltas("Hel"), then=hangs)) as server,
        pytest.raises(ValueError, match="said no"),
    ):
        ask(server, on_text=stop)


@pytest.mark.parametrize("background", [True, False])
def test_close_streams_from_another_thread_unblocks_a_call_that_waits_for_its_first_byte(background):
    with Misbehaving(hangs) as server:
        provider = provider_at(server)
        closer = threading.Thread(target=lambda: (server.arrived.wait(10), provider.close_streams()))
        closer.start()
        began = time.monotonic()
        with pytest.raises(AnswerLost, match="this worker is stopping"):
            provider.submit(REQUEST, background=background)
        assert time.monotonic() - began < 5
        closer.join()


def test_close_streams_unblocks_a_stream_in_the_middle_and_keeps_its_text():
    with Misbehaving(streams(created(), *deltas("Hel"), then=hangs)) as server:
        provider = provider_at(server)
        with pytest.raises(AnswerLost) as lost:
            provider.submit(REQUEST, background=False, on_text=lambda text: provider.close_streams())
    assert lost.value.text == "Hel"
    assert len(server.received) == 1  # a worker that stops does not go looking for the answer


def test_close_streams_ends_a_look_at_a_call_too():
    with Misbehaving(hangs) as server:
        provider = provider_at(server)
        closer = threading.Thread(target=lambda: (server.arrived.wait(10), provider.close_streams()))
        closer.start()
        with pytest.raises(ProviderBusy, match="this worker is stopping"):
            provider.retrieve("resp_1")
        closer.join()


def test_close_streams_leaves_later_calls_alone():
    with Misbehaving(answers(200, response())) as server:
        provider = provider_at(server)
        provider.close_streams()
        assert provider.submit(REQUEST, background=False).text == "Hello"


def test_a_line_that_was_cut_before_it_connected_sends_nothing():
    with Misbehaving(answers(200, response())) as server, Line(10) as line:
        line.cut("too late")
        with pytest.raises(Exception, match="too late"):
            line.client(server.url, 10).post(server.url, json={})
    assert server.received == []


@pytest.mark.parametrize(
    "act",
    [
        hangs,
        drips("HTTP/1.1 200 OK\r\n", "x-drip: 1\r\n"),
        streams(then=drips("", ": still here\n\n")),
        streams(then=drips("data: ", "x")),
    ],
    ids=["silence", "headers that drip", "keepalives for ever", "a line that never ends"],
)
@pytest.mark.parametrize("background", [True, False])
def test_a_call_ends_in_the_time_it_was_given_however_bytes_drip(act, background):
    began = time.monotonic()
    with Misbehaving(act) as server, pytest.raises(AnswerLost, match=r"within 0\.5 s|timed out"):
        ask(server, background=background, timeout_seconds=0.5)
    assert 0.4 < time.monotonic() - began < 5


def test_a_stream_that_broke_finds_its_answer_where_the_provider_stored_it():
    with Misbehaving(streams(created(), *deltas("Hel")), answers(200, response("Hello again"))) as server:
        reply = ask(server)
    assert reply.text == "Hello again"
    assert [one.method for one in server.received] == ["POST", "GET"]


def test_a_stream_that_broke_over_a_call_that_goes_on_is_an_open_reply():
    later = answers(200, response(None, "in_progress", usage=None))
    with Misbehaving(streams(created(), *deltas("Hel")), later) as server:
        reply = ask(server)
    assert (reply.is_open, reply.response_id) == (True, "resp_1")


@pytest.mark.parametrize("later", [answers(404, {}), answers(500, {})])
def test_a_stream_that_broke_with_nothing_stored_is_a_lost_answer(later):
    with Misbehaving(streams(created(), *deltas("Hel")), later) as server, pytest.raises(AnswerLost) as lost:
        ask(server)
    assert lost.value.text == "Hel"
