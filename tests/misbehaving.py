"""An HTTP server that does what real providers only do at night: each request gets the next scripted act."""

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from agentruns.errors import AgentRunsError
from agentruns.exchange import Reply, Request
from agentruns.llm import Provider

Act = Callable[["Caller"], None]


@dataclass
class Received:
    method: str
    path: str
    headers: dict[str, str]
    body: Any


class Caller:
    """One accepted connection, its request read: an act writes to it, and it is closed when the act returns."""

    def __init__(self, connection: socket.socket, received: Received, let_go: threading.Event) -> None:
        self.connection, self.received, self.let_go = connection, received, let_go

    def send(self, text: str | bytes) -> None:
        self.connection.sendall(text.encode() if isinstance(text, str) else text)

    def reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class Misbehaving:
    """`with Misbehaving(act, act, …) as server`: one act a request, the last one for all that follow."""

    def __init__(self, *acts: Act) -> None:
        self.acts = list(acts)
        self.received: list[Received] = []
        self.connections = 0
        self.let_go = threading.Event()
        self.arrived = threading.Event()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"

    def __enter__(self) -> "Misbehaving":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed: the test is over
                return
            threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            with self._lock:
                self.connections += 1
            received = read_request(connection)
            if received is None:
                return
            with self._lock:
                self.received.append(received)
                act = self.acts.pop(0) if len(self.acts) > 1 else self.acts[0]
            self.arrived.set()
            try:
                act(Caller(connection, received, self.let_go))
            except OSError:  # the caller hung up in the middle of an act, which is what some tests are about
                return


def read_request(connection: socket.socket) -> Received | None:
    raw = b""
    while b"\r\n\r\n" not in raw:
        chunk = connection.recv(65536)
        if not chunk:
            return None
        raw += chunk
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += connection.recv(65536)
    return Received(method, path, headers, json.loads(body) if body else None)


# --- acts -------------------------------------------------------------------------------------------------------------


def answers(status: int, body: Any = "", headers: dict[str, str] | None = None) -> Act:
    """A whole HTTP answer: JSON for a dict or a list, else the text as it is."""
    text = body if isinstance(body, (str, bytes)) else json.dumps(body)
    content = text.encode() if isinstance(text, str) else text
    kind = "text/html" if isinstance(body, (str, bytes)) else "application/json"
    lines = {"content-type": kind, "content-length": str(len(content)), "connection": "close"} | (headers or {})
    head = f"HTTP/1.1 {status} X\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items()) + "\r\n"
    return lambda caller: caller.send(head.encode() + content)


def streams(*frames: str | dict[str, Any], then: Act | None = None) -> Act:
    """Server-sent events, dicts as JSON and texts as they are; then it closes, or does `then`."""

    def act(caller: Caller) -> None:
        caller.send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        for frame in frames:
            caller.send(frame if isinstance(frame, str) else f"event: {frame['type']}\ndata: {json.dumps(frame)}\n\n")
        if then:
            then(caller)

    return act


def hangs(caller: Caller) -> None:
    caller.let_go.wait(60)


def resets(caller: Caller) -> None:
    caller.reset()


def closes(caller: Caller) -> None:
    """Takes the request and closes the connection, with not a byte of an answer."""


def sends(*pieces: str) -> Act:
    """Raw bytes, then it closes."""
    return lambda caller: [caller.send(piece) for piece in pieces] and None


def drips(first: str, piece: str, every: float = 0.02) -> Act:
    """Sends `first` and then `piece` for ever, so slowly that no timeout between two bytes is ever reached."""

    def act(caller: Caller) -> None:
        caller.send(first)
        while not caller.let_go.wait(every):
            caller.send(piece)

    return act


# --- what a well-behaved provider says --------------------------------------------------------------------------------

USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 0},
    "output_tokens": 20,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 120,
}


def response(text: str | None = "Hello", status: str = "completed", **more: Any) -> dict[str, Any]:
    output = [] if text is None else [message({"type": "output_text", "text": text, "annotations": []})]
    known = {"id": "resp_1", "object": "response", "model": "m-1", "status": status, "output": output, "usage": USAGE}
    return known | more


def message(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": list(parts)}


def created(number: int | None = 0) -> dict[str, Any]:
    event = {"type": "response.created", "response": {"id": "resp_1", "object": "response", "status": "in_progress"}}
    return event if number is None else event | {"sequence_number": number}


def deltas(*texts: str) -> Iterable[dict[str, Any]]:
    return [{"type": "response.output_text.delta", "delta": text} for text in texts]


def ended(answer: dict[str, Any], kind: str | None = None) -> dict[str, Any]:
    return {"type": kind or f"response.{answer['status']}", "response": answer}


# --- what is asked of it ----------------------------------------------------------------------------------------------

REQUEST = Request(model="m-1", input="Say hello", max_output_tokens=50, idempotency_key="run:draft/ask~1")


def provider_at(server: Misbehaving, key: str = "sk-canary-123456") -> Provider:
    return Provider.at(server.url, key)


def ask(server: Misbehaving, request: Request = REQUEST, background: bool = False, **more: Any) -> Reply:
    return provider_at(server).submit(request, background=background, **more)


def failure_of(act: Act, *, background: bool = False) -> AgentRunsError:
    """What a call ends with when its POST is answered by `act`; it fails when there is more than one POST."""
    with Misbehaving(act) as server, pytest.raises(AgentRunsError) as caught:
        ask(server, background=background)
    assert len([one for one in server.received if one.method == "POST"]) <= 1, "a paid POST is never repeated here"
    return caught.value
