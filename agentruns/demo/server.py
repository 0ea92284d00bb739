"""HTTP in: which path is which verb of the API, and how its answer goes out."""

import json
import sys
import time
import traceback
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from agentruns.demo import MARK, MODEL
from agentruns.demo.api import Answer, Api
from agentruns.demo.errors import ApiError, Reset
from agentruns.demo.events import Event, timeline
from agentruns.demo.faults import UnknownFault, parse
from agentruns.demo.response import TERMINAL, Response
from agentruns.demo.wire import Wire

HOST = "127.0.0.1"
BODY_BYTES = 32 * 2**20
LOOK_SECONDS = 0.1  # how often a waiting stream looks whether it was cancelled
LONGEST_POLL_SECONDS = 5.0


class Server(ThreadingHTTPServer):
    """A thread a connection; a client that goes away is no error."""

    daemon_threads = True
    request_queue_size = 128
    allow_reuse_port = False  # a taken port must be an error, not shared

    def __init__(self, port: int, api: Api) -> None:
        self.api = api
        super().__init__((HOST, port), Connection)

    def server_bind(self) -> None:
        """Without the look-up of the host's name that HTTPServer makes: it can take seconds, and nothing reads it."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            traceback.print_exc()


class Connection(Wire):
    server: Server

    def do_GET(self) -> None:
        self.route("GET")

    def do_POST(self) -> None:
        self.route("POST")

    def do_DELETE(self) -> None:
        self.route("DELETE")

    def route(self, method: str) -> None:
        """One request, whatever happens: an answer of the API, its error, a reset, or a 500 that is our own fault."""
        try:
            self.dispatch(method, urlsplit(self.path).path.rstrip("/").split("/")[1:])
        except ApiError as error:
            self.json(error.status, {"error": error.error}, error.headers)
        except Reset:
            self.reset()
        except ConnectionError:
            self.close_connection = True
        except Exception as error:
            traceback.print_exc()
            self.json(
                500, {"error": {"message": repr(error), "type": "server_error", "code": "demo_bug", "param": None}}
            )

    def dispatch(self, method: str, path: list[str]) -> None:
        body = self.body()  # also of a GET: what is left unread would be taken for the next request
        match method, path:
            case "GET", ["healthz"]:
                self.json(200, {"ok": True, "demo": True, "mark": MARK})
            case "GET", ["v1", "models"]:
                self.json(200, {"object": "list", "data": [model_card()]})
            case "GET", ["v1", "models", _]:
                self.json(200, model_card())
            case "POST", ["v1", "responses"]:
                self.create(parsed(body))
            case "POST", ["v1", "responses", "input_tokens"]:
                tokens = self.server.api.count_input(parsed(body))
                self.json(200, {"object": "response.input_tokens", "input_tokens": tokens})
            case "GET", ["v1", "responses", response_id]:
                self.retrieve(response_id)
            case "POST", ["v1", "responses", response_id, "cancel"]:
                self.show(self.server.api.cancel(response_id))
            case "DELETE", ["v1", "responses", response_id]:
                self.server.api.delete(response_id)
                self.json(200, {"id": response_id, "object": "response.deleted", "deleted": True})
            case _, ["_demo", *rest]:
                self.demo(method, rest, body)
            case _:
                raise ApiError(404, f"Invalid URL ({method} {self.path})")

    def create(self, request: dict[str, Any]) -> None:
        answer = self.server.api.create(request, self.headers.get("idempotency-key"))
        response = answer.response
        if request.get("stream"):
            self.events(self.live(response, after=-1), answer)
        elif response.is_background:
            self.show(answer)
        else:
            self.wait(response)
            self.show(answer)

    def retrieve(self, response_id: str) -> None:
        asked = {name: values[-1] for name, values in parse_qs(urlsplit(self.path).query).items()}
        if asked.get("stream") == "true":
            after = asked.get("starting_after", "-1")
            if not after.lstrip("-").isdecimal():
                raise ApiError(400, "Invalid 'starting_after': expected a whole number.", param="starting_after")
            answer = self.server.api.stream(response_id)
            self.events(self.live(answer.response, int(after)), answer)
        else:
            self.show(self.server.api.retrieve(response_id))

    def show(self, answer: Answer) -> None:
        """The response as it is now; an open one says when to ask again, as the vendor does."""
        now = time.time()
        headers = {"x-request-id": f"req_{answer.response.id[-12:]}_{now:.0f}"}
        if self.server.api.options.poll_after and answer.response.status(now) not in TERMINAL:
            seconds = min(max(answer.response.ready_at - now, 0.1), LONGEST_POLL_SECONDS)
            headers["openai-poll-after-ms"] = str(int(seconds * 1000) + 50)
        self.json(200, answer.response.body(now), headers, answer)

    def live(self, response: Response, after: int) -> Iterator[Event]:
        """The events with a greater number than `after`, each when its time has come; none after a cancel."""
        for at, event in timeline(response):
            if not self.lives_until(at, response.id):
                return
            if event["sequence_number"] > after:
                yield event

    def lives_until(self, at: float, response_id: str) -> bool:
        """Waits for that time; False as soon as the response is cancelled before it."""
        while True:
            cancelled_at = self.server.api.state.cancelled_at(response_id)
            if cancelled_at is not None and cancelled_at < at:
                return False
            left = at - time.time()
            if left <= 0:
                return True
            time.sleep(min(LOOK_SECONDS, left))

    def wait(self, response: Response) -> None:
        while response.ready_at > time.time():
            time.sleep(min(LOOK_SECONDS * 10, max(0.0, response.ready_at - time.time())))

    def demo(self, method: str, path: list[str], body: bytes) -> None:
        """What no vendor has: the ledger, and faults for tests that cannot change the prompts."""
        api = self.server.api
        match method, path:
            case "GET", ["ledger"]:
                self.json(200, api.ledger())
            case "GET", ["faults"]:
                found = [
                    {"number": number, "fault": fault.directive, "match": word}
                    for number, fault, word in api.state.faults()
                ]
                self.json(200, found)
            case "POST", ["faults"]:
                asked = parsed(body)
                options = [f"{name}={asked[name]}" for name in ("times", "on") if asked.get(name) is not None]
                try:
                    fault = parse(" ".join([str(asked.get("fault", "")), *options]))
                except UnknownFault as error:
                    raise ApiError(400, str(error), param="fault") from None
                self.json(200, {"number": api.state.add_fault(fault, str(asked.get("match") or ""))})
            case "DELETE", ["faults"]:
                api.state.clear_faults()
                self.json(200, {"deleted": True})
            case _:
                raise ApiError(404, f"Invalid URL ({method} {self.path})")

    def body(self) -> bytes:
        """The whole request body. Raises ApiError 413 or 411 and ends the connection, since the rest stays unread."""
        length = self.headers.get("content-length", "0")
        if "transfer-encoding" in self.headers or not length.isdecimal():
            self.close_connection = True
            raise ApiError(411, "A request needs a Content-Length.")
        if int(length) > BODY_BYTES:
            self.close_connection = True
            raise ApiError(413, f"The request is larger than {BODY_BYTES:,} bytes.")
        return self.rfile.read(int(length))


def parsed(body: bytes) -> dict[str, Any]:
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):  # broken JSON, bytes that are not UTF-8, a thousand levels
        request = None
    if not isinstance(request, dict):
        raise ApiError(400, "We could not parse the JSON body of your request.")
    return request


def model_card() -> dict[str, Any]:
    return {"id": MODEL, "object": "model", "created": 0, "owned_by": f"agentruns ({MARK})"}
