"""The same client against a provider that nobody here wrote: llmock, from PyPI, with its own ways to break."""

import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from agentruns.errors import AnswerLost, ProviderBusy, ResponseGone
from agentruns.exchange import Request
from agentruns.llm import Provider

REQUEST = Request(model="gpt-4o", input="Name three parts of a report.", max_output_tokens=200)


@contextmanager
def llmock(*options):
    """A running llmock's provider, and the list of requests that it says it got."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = Path(sys.executable).with_name("llmock")
    process = subprocess.Popen(
        [program, "serve", "--host", "127.0.0.1", "--port", str(port), "--log-level", "error", *options],
        stdout=subprocess.DEVNULL,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        wait_until_it_answers(process, f"{address}/_llmock/requests")
        yield Provider.at(f"{address}/v1", "sk-test"), lambda: httpx2.get(f"{address}/_llmock/requests").json()
    finally:
        process.terminate()
        process.wait(10)


def wait_until_it_answers(process, url):
    until = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < until:
        try:
            httpx2.get(url, timeout=1)
            return
        except httpx2.TransportError:
            time.sleep(0.05)
    pytest.fail("llmock did not start")


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
