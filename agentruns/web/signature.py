"""Whether a webhook comes from who knows our secret: the signature of Standard Webhooks, version 1 (symmetric).

By hand, because the client that could do it is not in a web process (tests/test_imports.py).
"""

import hmac
import time
from collections.abc import Mapping

from agentruns.signing import signature

TOLERANCE_SECONDS = 300  # older, or so much ahead: it may be one that somebody recorded
LONGEST_ID = 255


class Unsigned(Exception):
    """It is not to be believed; the message says why. `status`: 400 if it can be no webhook of ours, else 401."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


def recent_id(headers: Mapping[str, str]) -> str:
    """The event's id, by the headers alone, before a byte of the body is read. Raises Unsigned."""
    names = ("webhook-id", "webhook-timestamp", "webhook-signature")
    if missing := [name for name in names if not headers.get(name)]:
        raise Unsigned(400, f"A webhook has the headers {', '.join(names)}; missing: {', '.join(missing)}.")
    event_id, sent_at = headers["webhook-id"], headers["webhook-timestamp"]
    if not (len(event_id) <= LONGEST_ID and event_id.isascii() and event_id.isprintable()):
        raise Unsigned(400, f"A webhook-id has at most {LONGEST_ID} visible ASCII characters.")
    if not (sent_at.isascii() and sent_at.isdecimal() and len(sent_at) <= 15):
        raise Unsigned(400, "A webhook-timestamp is a whole number of seconds since 1970.")
    if abs(time.time() - int(sent_at)) > TOLERANCE_SECONDS:
        raise Unsigned(400, f"Its webhook-timestamp is more than {TOLERANCE_SECONDS} s from this host's clock.")
    return event_id


def check(secret: str, headers: Mapping[str, str], body: bytes) -> None:
    """Raises Unsigned unless one of the signatures (there are several while a secret is changed) is right."""
    right = signature(secret, headers["webhook-id"], headers["webhook-timestamp"], body).encode()
    found = [hmac.compare_digest(right, one.encode()) for one in headers["webhook-signature"].split(" ")]
    if not any(found):
        raise Unsigned(401, "None of its signatures is made with OPENAI_WEBHOOK_SECRET.")
