"""An effects service: does each thing once a key, logs whatever reaches it, and misbehaves on request.

It shares no code with what it judges. `python tests/trials/oracle.py LOG` prints its port. POST /do/NAME with a JSON
body and an Idempotency-Key; POST /told a webhook; POST /fault {"name", "kind", "times"}; the log is one JSON line an
arrival, fsynced.
"""

import hashlib
import json
import os
import socket
import struct
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

# When a fault strikes: before the thing is done (it is not), or after (it is, and the answer suffers).
BEFORE = ("refuse", "500-before", "503-before", "drop-before", "hang-before", "garbage-before", "409", "422", "429")
AFTER = (
    "500-after", "502-after", "503-after", "504-after", "drop-after", "reset-after", "hang-after", "garbage-after",
    "truncate-after", "empty-after", "slow-after", "wrong-type-after", "huge-after", "forget-after", "close-after",
)  # fmt: skip
KINDS = (*BEFORE, *AFTER)
HANG_SECONDS = 2.5


class Book:
    """What was done under which key, and the log."""

    def __init__(self, log: Path) -> None:
        self.log = open(log, "a")  # noqa: SIM115 - for the process's life
        self.done: dict[str, tuple[str, Any]] = {}
        self.faults: list[dict[str, Any]] = []
        self.guard = threading.Lock()

    def write(self, event: str, **about: Any) -> None:
        self.log.write(json.dumps({"at": time.time(), "event": event, **about}) + "\n")
        self.log.flush()
        os.fsync(self.log.fileno())

    def fault_for(self, name: str, run: str) -> str:
        for fault in self.faults:
            if fault["times"] > 0 and fault["name"] == name and fault["run"] in ("", run):
                fault["times"] -= 1
                return str(fault["kind"])
        return ""

    def do(self, name: str, key: str, body: bytes, run: str) -> tuple[int, Any]:
        """Status and answer; the thing is done when this returns, and logged."""
        sha = hashlib.sha256(body).hexdigest()
        known = self.done.get(key)
        if known is None:
            answer = {"number": len(self.done) + 1, "name": name}
            self.done[key] = (sha, answer)
            self.write("done", name=name, key=key, sha=sha, run=run)
            return 200, answer
        if known[0] != sha:
            self.write("key_changed", name=name, key=key, sha=sha, run=run)
            return 422, {"error": "this key was used with other parameters"}
        self.write("replayed", name=name, key=key, sha=sha, run=run)
        return 200, known[1]


class Desk(BaseHTTPRequestHandler):
    book: Book

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/fault":
            asked = {"run": "", "times": 1, **json.loads(body)}
            with self.book.guard:
                self.book.faults.append(asked)
            return self.reply(200, {})
        if self.path == "/told":
            told = json.loads(body)
            event, run = f"{told['type']} {told['data']['path']}", told["data"]["id"]
            with self.book.guard:
                self.book.write("told", name=event, key=self.headers["webhook-id"], run=run)
            return self.reply(200, {})
        name, key = self.path.rsplit("/", 1)[-1], self.headers.get("Idempotency-Key", "")
        run = json.loads(body).get("run", "")
        with self.book.guard:
            self.book.write("arrived", name=name, key=key, sha=hashlib.sha256(body).hexdigest(), run=run)
            fault = self.book.fault_for(name, run)
            if fault not in BEFORE:
                status, answer = self.book.do(name, key, body, run)
                if fault == "forget-after":
                    self.book.done.pop(key)
        if fault in BEFORE:
            return self.misbehave_before(fault)
        return self.misbehave_after(fault, status, answer)

    def misbehave_before(self, fault: str) -> None:
        if fault == "hang-before":
            time.sleep(HANG_SECONDS)
        if fault in ("drop-before", "hang-before"):
            return self.cut()
        if fault == "garbage-before":
            return self.raw(b"\x00\xff not http\r\n\r\n")
        status = {"refuse": 402, "409": 409, "422": 402, "429": 429, "503-before": 503}.get(fault, 500)
        return self.reply(status, {"error": fault})

    def misbehave_after(self, fault: str, status: int, answer: Any) -> None:
        text = json.dumps(answer).encode()
        match fault:
            case "500-after" | "502-after" | "503-after" | "504-after":
                self.reply(int(fault[:3]), {"error": fault})
            case "drop-after" | "forget-after" | "close-after":
                self.cut()
            case "reset-after":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.cut()
            case "hang-after":
                time.sleep(HANG_SECONDS)
                self.cut()
            case "garbage-after":
                self.raw(b"\x00\xff\r\n\r\n")
            case "truncate-after":
                self.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + text[:5])
            case "empty-after":
                self.raw(b"")
            case "wrong-type-after":
                self.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>")
            case "huge-after":
                self.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 20000000\r\n\r\n" + b"x" * 200_000)
            case "slow-after":
                time.sleep(0.7)
                self.reply(status, answer)
            case _:
                self.reply(status, answer)

    def reply(self, status: int, answer: Any) -> None:
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def raw(self, text: bytes) -> None:
        self.wfile.write(text)
        self.cut()

    def cut(self) -> None:
        self.close_connection = True
        self.connection.close()

    def log_message(self, *args: Any) -> None:
        """The log is the book's."""


def main() -> None:
    Desk.book = Book(Path(sys.argv[1]))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Desk)
    server.daemon_threads = True
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
