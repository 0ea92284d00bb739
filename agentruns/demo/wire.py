"""Bytes on the socket: JSON and server-sent events, whole, or hurt as a fault asks."""

import json
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

from agentruns.demo.api import Answer
from agentruns.demo.events import Event
from agentruns.demo.faults import Fault

HANG_SECONDS = 30
DRIP_SECONDS = 10
DRIPS = 20


class Wire(BaseHTTPRequestHandler):
    """One client's connection, kept alive from request to request."""

    protocol_version = "HTTP/1.1"
    server_version = "agentruns-demo"
    disable_nagle_algorithm = True
    wbufsize = -1  # headers and body leave in one piece
    timeout = 300

    def json(self, status: int, body: Any, headers: dict[str, str] | None = None, answer: Answer | None = None) -> None:
        """Sends `body`, after or instead of what the faults of `answer` do."""
        data = json.dumps(body).encode()
        if answer and answer.has("garbage"):
            data = b"<html><body><h1>502 Bad Gateway</h1>"
        if not answer or self.survives(answer):
            self.head(status, {"content-type": "application/json", "content-length": str(len(data)), **(headers or {})})
            if answer and answer.has("truncate"):
                self.wfile.write(data[: len(data) // 2])
                self.close_connection = True
            elif answer and (fault := answer.has("drip")):
                self.drip(data, fault)
            else:
                self.wfile.write(data)

    def events(self, events: Iterable[Event], answer: Answer) -> None:
        """Sends a stream in chunks, so that a client can tell an end from a cut."""
        if self.survives(answer):
            self.head(200, {"content-type": "text/event-stream; charset=utf-8", "transfer-encoding": "chunked"})
            self.wfile.flush()
            if answer.has("keepalive"):
                self.event({"type": "keepalive", "sequence_number": 0})
            for event in self.hurt(events, answer):
                self.event(event)
            if answer.has("truncate"):
                self.close_connection = True
            else:
                self.wfile.write(b"0\r\n\r\n")

    def hurt(self, events: Iterable[Event], answer: Answer) -> Iterator[Event]:
        """The events until the fault, if there is one, strikes: at the third piece of text."""
        ends = any(answer.has(name) for name in ("truncate", "unfinished", "error", "garbage"))
        pieces = 0
        for event in events:
            pieces += event["type"].endswith(".delta")
            if ends and (
                pieces == 3 or event["type"] in {"response.completed", "response.failed", "response.incomplete"}
            ):
                if answer.has("error"):
                    error = {
                        "type": "error",
                        "code": "server_error",
                        "message": "An error occurred (on request, demo).",
                    }
                    yield {**error, "param": None, "sequence_number": event["sequence_number"]}
                if answer.has("garbage"):
                    self.chunk(b"event: response.output_text.delta\ndata: {not json\n\n")
                return
            yield event

    def event(self, event: Event) -> None:
        self.chunk(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def survives(self, answer: Answer) -> bool:
        """Hangs or resets the connection if asked to; whether there is still somebody to answer."""
        if fault := answer.has("hang"):
            time.sleep(fault.seconds(HANG_SECONDS))
        if answer.has("drop"):
            self.reset()
            return False
        return True

    def reset(self) -> None:
        """Ends the connection as a crashed peer does: RST, no answer."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def drip(self, data: bytes, fault: Fault) -> None:
        size = len(data) // DRIPS + 1
        for start in range(0, len(data), size):
            self.wfile.write(data[start : start + size])
            self.wfile.flush()
            time.sleep(fault.seconds(DRIP_SECONDS) / DRIPS)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Silent: beside `up` a line for each poll would bury everything else. The ledger has the POSTs."""
