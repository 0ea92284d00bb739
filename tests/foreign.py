"""llmock, from PyPI: a provider that nobody here wrote."""

import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from agentruns.llm import Provider


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
