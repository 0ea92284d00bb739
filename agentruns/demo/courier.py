"""Webhooks out: tells an address of each background response that has ended, signed, until it is heard.

As the vendor does: at least once, in no order worth relying on, with ever longer pauses for three days. What was told
is in the state file, so that a kill only makes something be told twice.
"""

import base64
import binascii
import hashlib
import hmac
import http.client
import json
import threading
import time
from urllib.parse import urlsplit

from agentruns.demo.response import TERMINAL, Response
from agentruns.demo.state import State

LOOK_SECONDS = 0.05
ANSWER_SECONDS = 5.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 3600.0
PATIENCE_SECONDS = 72 * 3600.0


class Courier(threading.Thread):
    """Delivers to `url`, one event after another. Raises ValueError for an address or a secret that is none."""

    def __init__(self, state: State, url: str, secret: str) -> None:
        super().__init__(name="webhooks", daemon=True)
        self.state, self.key, self.address = state, key_of(secret), urlsplit(url)
        if self.address.scheme not in {"http", "https"} or not self.address.hostname:
            raise ValueError(f"{url!r} is no http address")
        self.ending = threading.Event()

    def run(self) -> None:
        while not self.ending.wait(LOOK_SECONDS):
            for response in self.state.unannounced(time.time()):
                self.announce(response)
                if self.ending.is_set():
                    return

    def end(self) -> None:
        """Returns when nothing more is sent; an answer is waited for."""
        self.ending.set()
        self.join()

    def announce(self, response: Response) -> None:
        now = time.time()
        status = response.status(now)
        if not response.is_background:
            self.state.tried(response.id, None)
        if status not in TERMINAL or not response.is_background:
            return
        tries = self.state.tries(response.id)
        told = self.is_heard(response.id, f"response.{status}") or now - response.created_at > PATIENCE_SECONDS
        pause = min(FIRST_PAUSE_SECONDS * 2 ** min(tries, 20), LONGEST_PAUSE_SECONDS)
        self.state.tried(response.id, None if told else time.time() + pause)

    def is_heard(self, response_id: str, kind: str) -> bool:
        """Whether a 2xx came; a redirect is no such thing."""
        tail = response_id.removeprefix("resp_")
        event = {"id": f"evt_{tail}", "object": "event", "type": kind, "created_at": int(time.time())}
        body = json.dumps({**event, "data": {"id": response_id}}).encode()
        headers = {
            "content-type": "application/json",
            "user-agent": "agentruns-demo",
            **self.signed(f"wh_{tail}", body),
        }
        make = http.client.HTTPSConnection if self.address.scheme == "https" else http.client.HTTPConnection
        connection = make(self.address.hostname or "", self.address.port, timeout=ANSWER_SECONDS)
        try:
            connection.request("POST", self.address.path or "/", body, headers)
            return 200 <= connection.getresponse().status < 300
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def signed(self, event_id: str, body: bytes) -> dict[str, str]:
        """The headers of Standard Webhooks; the id is the same at every try, the time and so the signature are not."""
        sent_at = str(int(time.time()))
        made = hmac.new(self.key, f"{event_id}.{sent_at}.".encode() + body, hashlib.sha256).digest()
        signature = f"v1,{base64.b64encode(made).decode()}"
        return {"webhook-id": event_id, "webhook-timestamp": sent_at, "webhook-signature": signature}


def key_of(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        key = b""
    if not key or not secret.startswith("whsec_"):
        raise ValueError("a webhook secret is whsec_ followed by base64")
    return key
