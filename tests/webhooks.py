"""Webhooks as a provider sends them, and as others forge them."""

import base64
import hashlib
import hmac
import json
import time
from functools import cache
from typing import Any

from django.test import Client

from agentruns.models import IdempotencyKey

SECRET = "whsec_" + base64.b64encode(b"a secret of thirty-two bytes, no").decode()
OTHER_SECRET = "whsec_" + base64.b64encode(b"somebody else's secret, and long").decode()
URL = "/webhooks/openai"


def event(response_id: str, kind: str = "response.completed") -> bytes:
    return json.dumps({"id": "evt_1", "type": kind, "created_at": 1, "data": {"id": response_id}}).encode()


def signature(body: bytes, event_id: str, at: str, secret: str = SECRET) -> str:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    made = hmac.new(key, f"{event_id}.{at}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(made).decode()}"


def headers(body: bytes, event_id: str = "wh_1", *, age: float = 0, secret: str = SECRET) -> dict[str, str]:
    at = str(int(time.time() - age))
    return {
        "webhook-id": event_id,
        "webhook-timestamp": at,
        "webhook-signature": signature(body, event_id, at, secret),
    }


def deliver(response_id: str, event_id: str = "wh_1", kind: str = "response.completed", **more: Any) -> int:
    """The status of the answer."""
    body = event(response_id, kind)
    return post(body, headers(body, event_id, **more))


def post(body: bytes, sent: dict[str, str]) -> int:
    return client().post(URL, body, content_type="application/json", headers=sent).status_code


@cache
def client() -> Client:
    """One for all, and for all threads, since nothing signs in: making one loads every middleware anew."""
    return Client(enforce_csrf_checks=True)


def stored() -> dict[str, str]:
    """State of the events that are kept, by their id."""
    return dict(IdempotencyKey.objects.filter(scope="webhook").values_list("key", "state"))
