"""The demo provider's webhooks: signed as the official client expects, and sent again until they are heard."""

import http.server
import threading
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.demo.conftest import TASK
from tests.system import wait_until
from tests.webhooks import SECRET


class Ear(http.server.ThreadingHTTPServer):
    """Hears webhooks; answers the first of them with `statuses`, the others with 200."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.statuses: list[int] = []
        super().__init__(("127.0.0.1", 0), Connection)
        self.url = f"http://127.0.0.1:{self.server_port}/hook"


class Connection(http.server.BaseHTTPRequestHandler):
    server: Ear

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.heard.append((body, dict(self.headers)))
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        self.send_response(status)
        self.send_header("location", self.server.url)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Silent."""


@pytest.fixture
def ear() -> Iterator[Ear]:
    with Ear() as ear:
        threading.Thread(target=ear.serve_forever, daemon=True).start()
        yield ear
        ear.shutdown()


def events(ear: Ear, count: int) -> list[Any]:
    """As the official client reads them, which checks the signature."""
    wait_until(lambda: len(ear.heard) >= count, f"{count} webhooks")
    client = openai.OpenAI(api_key="none", webhook_secret=SECRET)
    return [client.webhooks.unwrap(body, headers) for body, headers in ear.heard]


@pytest.mark.parametrize(
    ("task", "kind"), [("", "completed"), ("[demo: fail]", "failed"), ("[demo: incomplete]", "incomplete")]
)
def test_an_ended_background_response_is_told_of_once_and_signed(own, ear, task, kind):
    own.start(speed=50, webhook=ear.url, webhook_secret=SECRET)
    response = own.answer(f"{TASK} {task}")
    (event,) = events(ear, 1)
    assert (event.type, event.data.id) == (f"response.{kind}", response.id)
    own.client().responses.create(model="demo", input=TASK)  # in the foreground: nobody is told
    second = own.answer(f"{TASK} again")
    assert [event.data.id for event in events(ear, 2)] == [response.id, second.id]


def test_what_was_not_heard_is_sent_again_under_its_id_also_after_a_kill(own, ear):
    ear.statuses = [500, 302, 404]
    own.start(speed=50, webhook=ear.url, webhook_secret=SECRET)
    own.answer(TASK)
    events(ear, 2)
    own.kill()
    own.start(speed=50, webhook=ear.url, webhook_secret=SECRET)
    events(ear, 4)
    assert len({headers["webhook-id"] for _, headers in ear.heard}) == 1
    own.stop()
    own.start(speed=50, webhook=ear.url, webhook_secret=SECRET)
    own.answer(f"{TASK} again")
    events(ear, 5)
    assert len(ear.heard) == 5, "what was heard is not told again"
