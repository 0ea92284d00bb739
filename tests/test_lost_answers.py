"""Was it sent? The one question after a failure without an HTTP status: what never left costs nothing."""

import socket

import httpx2
import pytest

from agentruns import llm, wire
from agentruns.errors import AnswerLost, ModelError, ProviderBusy, ProviderStopped, Refused
from agentruns.troubles import Sent
from tests.misbehaving import (
    REQUEST,
    Misbehaving,
    answers,
    closes,
    created,
    deltas,
    failure_of,
    provider_at,
    resets,
    sends,
    streams,
)

KEY = "sk-1"
HALF = 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{"id": "resp_1", "out'


def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:{port}/v1", "http://nobody.invalid/v1", "https://127.0.0.1:{port}/v1"]
)
@pytest.mark.parametrize("background", [True, False])
def test_a_connection_that_was_never_made_is_busy_not_lost(url, background):
    provider = llm.Provider.at(url.format(port=closed_port()), KEY)
    with pytest.raises(ProviderBusy, match="No connection to"):
        provider.submit(REQUEST, background=background)


def test_a_host_that_does_not_pick_up_is_busy_not_lost(monkeypatch):
    monkeypatch.setattr(wire, "CONNECT_SECONDS", 0.3)
    with socket.socket() as full:  # a listener whose queue is full drops what comes: the client's SYN is never answered
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        queued = [socket.socket() for _ in range(3)]
        for one in queued:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        with pytest.raises(ProviderBusy, match="No connection to"):
            llm.Provider.at(f"http://127.0.0.1:{full.getsockname()[1]}/v1", KEY).submit(REQUEST, background=True)
        for one in queued:
            one.close()


def test_a_server_that_does_not_speak_tls_is_busy_not_lost(monkeypatch):
    monkeypatch.setattr(wire, "CONNECT_SECONDS", 0.3)
    with Misbehaving(closes) as server:
        provider = llm.Provider.at(server.url.replace("http:", "https:"), KEY)
        with pytest.raises(ProviderBusy, match="No connection to"):
            provider.submit(REQUEST, background=True)


def test_a_certificate_that_is_not_trusted_stops_the_provider():
    refusal = httpx2.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate")
    with pytest.raises(ProviderStopped, match="SSL_CERT_FILE"):
        raise Sent("gateway.example", creates=True).unanswered(refusal, None, "")


@pytest.mark.parametrize("url", ["localhost:8000/v1", "ftp://127.0.0.1/v1", "/v1"])
def test_an_address_that_is_none_stops_the_provider(url):
    with pytest.raises(ProviderStopped, match="OPENAI_BASE_URL"):
        llm.Provider.at(url, KEY).submit(REQUEST, background=True)


LOST = {
    "closed without a byte": closes,
    "reset": resets,
    "half a header": sends("HTTP/1.1 200 OK\r\ncontent-ty"),
    "half an answer": sends(HALF),
    "no HTTP": sends("SSH-2.0-OpenSSH_9.9\r\n\r\n"),
    "garbage for JSON": answers(200, "{]", {"content-type": "application/json"}),
    "a page with 200": answers(200, "<html>Sign in to the hotel's network</html>"),
    "JSON that is no response": answers(200, {"ok": True}),
    "JSON that is a list": answers(200, [1, 2]),
    "JSON a mile deep": answers(200, "[" * 200_000, {"content-type": "application/json"}),
    "bytes that are no text": answers(200, b'{"id": "\xff\xfe"}', {"content-type": "application/json"}),
    "gzip that is none": answers(200, "plain", {"content-encoding": "gzip", "content-type": "application/json"}),
    "nothing": answers(200, ""),
    "an error with 200": answers(200, {"error": {"code": 500, "message": "upstream"}}),
}


@pytest.mark.parametrize("act", LOST.values(), ids=LOST)
@pytest.mark.parametrize("background", [True, False])
def test_a_post_that_was_sent_and_not_answered_is_lost(act, background):
    assert type(failure_of(act, background=background)) is AnswerLost


@pytest.mark.parametrize("act", LOST.values(), ids=LOST)
def test_the_same_on_a_retrieve_is_only_busy(act):
    with Misbehaving(act) as server, pytest.raises(ProviderBusy):
        provider_at(server).retrieve("resp_1")


CUT_STREAMS = {
    "no last event": streams(created(None), *deltas("Hel")),
    "done, without a last event": streams(*deltas("Hel"), "data: [DONE]\n\n"),
    "garbage in the middle": streams(*deltas("Hel"), 'data: {"type": "resp\n\n'),
    "bytes that are no text": streams(*deltas("Hel"), then=lambda caller: caller.send(b"data: \xff\xfe\n\n")),
    "reset in the middle": streams(*deltas("Hel"), then=resets),
    "half an event": streams(*deltas("Hel"), 'data: {"type": "response.completed"}'),
    "an error event": streams(*deltas("Hel"), {"type": "error", "code": "server_error", "message": "wfr_1"}),
    "a nested error": streams(*deltas("Hel"), {"type": "error", "error": {"code": "rate_limit_exceeded"}}),
    "an error without a type": streams(*deltas("Hel"), 'data: {"error": {"message": "upstream"}}\n\n'),
    "an error that is a word": streams(*deltas("Hel"), 'data: {"error": "upstream"}\n\n'),
}


@pytest.mark.parametrize("act", CUT_STREAMS.values(), ids=CUT_STREAMS)
def test_a_stream_without_a_last_event_is_lost_with_the_text_it_brought(act):
    failure = failure_of(act)
    assert (type(failure), failure.text) == (AnswerLost, "Hel")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("rate_limit_exceeded", ProviderBusy),
        ("server_is_overloaded", ProviderBusy),
        ("insufficient_quota", ProviderStopped),
        ("invalid_prompt", Refused),
        ("context_length_exceeded", ModelError),
        ("server_error", AnswerLost),
        (None, AnswerLost),
    ],
)
def test_an_error_event_before_any_text_is_as_good_as_a_status_if_it_says_why(code, expected):
    flat = {"type": "error", "code": code, "message": "why"}
    nested = {"type": "error", "error": {"code": code, "message": "why"}}
    assert type(failure_of(streams(flat))) is expected
    assert type(failure_of(streams(nested))) is expected


def test_an_error_page_that_was_cut_is_still_an_error():
    cut = sends("HTTP/1.1 503 Busy\r\nretry-after: 9\r\ncontent-length: 500\r\n\r\n<html>")
    for background in (True, False):
        failure = failure_of(cut, background=background)
        assert (type(failure), failure.retry_after) == (ProviderBusy, 9)


def test_an_answer_without_end_does_not_take_the_memory(monkeypatch):
    monkeypatch.setattr(wire, "WIRE_BYTES", 100_000)
    endless = streams("data: ", then=lambda caller: [caller.send("x" * 10_000) for _ in range(100)] and None)
    assert "longer than 100,000 bytes" in str(failure_of(endless))
    assert "longer than 100,000 bytes" in str(failure_of(endless, background=True))
