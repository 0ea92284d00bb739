"""The tiny real model: its refusals always; the model itself where the extra `local-model` is installed."""

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import openai
import pytest
from django.core.management import CommandError, call_command

from agentruns.management.commands.local_model import NAME, WEIGHTS, fetched, refuse_taken
from tests.providers import ROOT

HAS_ENGINE = importlib.util.find_spec("xllamacpp") is not None
START_SECONDS = 180  # the first time it fetches 93 MB


@pytest.mark.skipif(HAS_ENGINE, reason="the extra local-model is installed here")
def test_without_its_extra_it_says_in_one_line_how_to_get_it():
    with pytest.raises(CommandError, match=r"^The engine .+ uv run --extra local-model manage\.py local_model$"):
        call_command("local_model")


def test_weights_that_are_not_the_pinned_file_are_refused(tmp_path):
    (tmp_path / WEIGHTS).write_bytes(b"something else")
    with pytest.raises(CommandError, match=r"SHA-256 [0-9a-f]{64}.*Delete it"):
        fetched(tmp_path, print)


def test_a_taken_port_is_refused_in_one_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CommandError, match=rf"^Cannot listen on 127\.0\.0\.1:{port}: .+ Choose another --port\.$"):
            refuse_taken(port)


@pytest.mark.skipif(not HAS_ENGINE, reason="needs `uv sync --extra local-model` (130 MB)")
def test_the_real_model_streams_an_answer_with_its_usage():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, str(ROOT / "manage.py"), "local_model", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ})
    try:
        wait_until_healthy(process, port)
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0)
        asked = {"input": "Name one city in France.", "max_output_tokens": 30}
        *_, last = client.responses.create(model=NAME, stream=True, **asked)
        assert (last.type, last.response.model) == ("response.completed", NAME)
        assert last.response.output_text
        assert 0 < last.response.usage.output_tokens <= 30
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
        process.stdout.close()


def wait_until_healthy(process, port):
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
            return
        except urllib.error.URLError:
            time.sleep(0.2)
    pytest.fail(f"the local model is not up (exit code {process.poll()})")
