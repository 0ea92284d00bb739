"""What goes to a provider, what else it is asked, and who it is."""

import asyncio
import threading
import uuid
from dataclasses import replace

import pytest

from agentruns import llm
from agentruns.errors import ModelError, ProviderBusy, ProviderStopped, ResponseGone
from agentruns.exchange import Reply, Usage, is_strict
from tests.misbehaving import REQUEST, Misbehaving, answers, ask, created, deltas, ended, provider_at, response, streams

# --- what is sent -----------------------------------------------------------------------------------------------------


def test_a_background_call_says_background_and_store_and_carries_its_idempotency_key():
    with Misbehaving(answers(200, response(None, "queued", usage=None))) as server:
        reply = ask(server, replace(REQUEST, metadata={"run": "r", "path": "draft/ask"}), background=True)
    sent = server.received[0]
    assert (reply.is_open, reply.response_id, reply.usage) == (True, "resp_1", None)
    assert sent.path == "/v1/responses"
    assert sent.headers["idempotency-key"] == "run:draft/ask~1"
    assert sent.headers["authorization"] == "Bearer sk-canary-123456"
    assert sent.body == {
        "model": "m-1",
        "input": "Say hello",
        "max_output_tokens": 50,
        "metadata": {"run": "r", "path": "draft/ask"},
        "store": True,
        "background": True,
    }


def test_a_call_without_background_is_a_stream():
    with Misbehaving(streams(created(), *deltas("Hel", "lo"), ended(response()))) as server:
        reply = ask(server)
    assert server.received[0].body["stream"] is True
    assert "background" not in server.received[0].body
    assert reply.text == "Hello"
    assert reply.usage == Usage(input=100, cached=40, output=20, reasoning=5, tier="")


def test_a_schema_is_strict_only_where_every_object_is_closed_and_requires_all():
    closed = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    nested = {"type": "array", "items": {"type": "object", "properties": {"a": {}}, "required": []}}
    assert is_strict(closed)
    assert not is_strict(nested)
    body = replace(REQUEST, schema=nested, schema_name="parts of.it").body()
    assert body["text"]["format"] == {"type": "json_schema", "name": "parts_of_it", "schema": nested, "strict": False}


def test_a_fingerprint_does_not_change_with_the_attempt_but_with_the_question():
    first, second = (replace(REQUEST, metadata={"attempt": number}) for number in "12")
    assert first.fingerprint() == second.fingerprint()
    assert first.fingerprint() != replace(first, instructions="Be brief").fingerprint()


@pytest.mark.parametrize("text", ["a lone surrogate: \ud800", [{"n": float("nan")}], [object()]])
def test_what_cannot_be_sent_is_refused_before_anything_is_sent(text):
    with Misbehaving(answers(200, response())) as server, pytest.raises(ModelError, match="no JSON that can be sent"):
        ask(server, replace(REQUEST, input=text))
    assert server.connections == 0


def test_every_post_has_a_connection_of_its_own():
    keep_alive = {"connection": "keep-alive"}
    with Misbehaving(answers(200, response(), keep_alive)) as server:
        provider = provider_at(server)
        for _ in range(3):
            provider.submit(REQUEST, background=True)
    assert server.connections == 3


# --- asking again, and stopping ---------------------------------------------------------------------------------------


def test_retrieve_reads_the_answer_and_how_long_to_leave_the_provider_alone():
    with Misbehaving(answers(200, response(None, "queued", usage=None), {"openai-poll-after-ms": "2500"})) as server:
        reply = provider_at(server).retrieve("resp_1")
    assert (reply.status, reply.poll_after) == ("queued", 2.5)
    assert server.received[0].path == "/v1/responses/resp_1"


def test_cancel_returns_the_usage_that_only_a_later_look_has():
    acts = answers(200, response(None, "cancelled", usage=None)), answers(200, response(None, "cancelled"))
    with Misbehaving(*acts) as server:
        reply = provider_at(server).cancel("resp_1")
    assert (reply.status, reply.usage.input) == ("cancelled", 100)
    assert [one.path for one in server.received] == ["/v1/responses/resp_1/cancel", "/v1/responses/resp_1"]


@pytest.mark.parametrize("status", [400, 409, 500])
def test_cancel_of_what_had_ended_returns_its_paid_answer(status):
    with Misbehaving(answers(status, {"error": {"message": "already done"}}), answers(200, response())) as server:
        assert provider_at(server).cancel("resp_1").text == "Hello"


def test_cancel_that_did_not_work_says_so():
    acts = answers(500, {}), answers(200, response(None, "in_progress"))
    with Misbehaving(*acts) as server, pytest.raises(ProviderBusy):
        provider_at(server).cancel("resp_1")


def test_cancel_keeps_its_own_answer_when_the_later_look_fails():
    with Misbehaving(answers(200, response(None, "cancelled")), answers(503, {})) as server:
        assert provider_at(server).cancel("resp_1").status == "cancelled"


def test_cancel_of_an_unknown_id_is_gone():
    with Misbehaving(answers(404, {})) as server, pytest.raises(ResponseGone):
        provider_at(server).cancel("resp_1")


def test_many_are_looked_at_in_one_go_and_each_has_its_own_ending():
    endings = {
        "/v1/responses/resp_0": answers(200, response()),
        "/v1/responses/resp_1": answers(404, {}),
        "/v1/responses/resp_2": answers(503, {}, {"retry-after": "7"}),
    }
    with Misbehaving(lambda caller: endings[caller.received.path](caller)) as server:
        found = asyncio.run(provider_at(server).retrieve_many(["resp_0", "resp_1", "resp_2", "resp_0"]))
    assert len(server.received) == 3
    assert isinstance(found["resp_0"], Reply)
    assert isinstance(found["resp_1"], ResponseGone)
    assert found["resp_2"].retry_after == 7


def test_many_are_in_flight_together_but_never_more_than_twenty():
    level, lock, seen = [0], threading.Lock(), []

    def slow(caller):
        with lock:
            level[0] += 1
            seen.append(level[0])
        caller.let_go.wait(0.1)
        with lock:
            level[0] -= 1
        answers(200, response())(caller)

    with Misbehaving(slow) as server:
        found = asyncio.run(provider_at(server).retrieve_many(f"resp_{number}" for number in range(50)))
    assert len(found) == 50
    assert all(isinstance(reply, Reply) for reply in found.values())
    assert 10 < max(seen) <= 20


# --- identity ---------------------------------------------------------------------------------------------------------


def test_a_provider_is_its_address_and_its_key_and_prints_neither_key_nor_less():
    one, same, other = (llm.Provider.at("http://h:1/v1", key) for key in ("sk-canary-1", "sk-canary-1", "sk-canary-2"))
    assert one == same
    assert len({one, same, other}) == 2
    assert one.name == "h:1"
    assert len(one.key_hash) == 16
    assert "canary" not in repr(one) + str(one)


def test_a_password_in_the_address_is_hidden_and_still_sent():
    with Misbehaving(answers(200, response())) as server:
        provider = llm.Provider.at(server.url.replace("//", "//me:canary@"), "sk-1")
        provider.submit(REQUEST, background=True)
    assert (provider.base_url, "canary" in repr(provider)) == (server.url, False)
    assert server.received[0].headers["authorization"].startswith("Basic ")


def test_without_a_model_the_provider_is_the_demo_and_says_so(settings):
    settings.AGENT_DEMO, settings.AGENT_DEMO_URL = True, "http://127.0.0.1:8723/v1"
    assert llm.provider().name == "demo model at 127.0.0.1:8723"
    settings.AGENT_DEMO, settings.OPENAI_BASE_URL, settings.OPENAI_API_KEY = False, "", f"sk-{uuid.uuid4()}"
    assert llm.provider().name == "api.openai.com"
    assert llm.provider() is llm.provider()


@pytest.mark.parametrize(("url", "key"), [("http://127.0.0.1:1/v1", "sk-…"), ("http://host:port/v1", "sk-1")])
def test_a_key_or_an_address_that_no_request_can_carry_stops_the_provider(url, key):
    provider = llm.Provider.at(url, key)
    with pytest.raises(ProviderStopped, match="Set it again"):
        provider.submit(REQUEST, background=False)
    found = asyncio.run(provider.retrieve_many(["resp_1"]))
    assert isinstance(found["resp_1"], ProviderStopped)


def test_a_proxy_of_the_environment_is_not_asked_for_a_model_on_this_machine(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with Misbehaving(answers(200, response())) as server:
        assert ask(server).text == "Hello"
