"""The signature of Standard Webhooks (standardwebhooks.com), version 1, symmetric: made here, and compared with."""

import base64
import hmac


def signature(secret: str, event_id: str, sent_at: int | str, body: bytes) -> str:
    """`v1,` and base64 over id, time (seconds since 1970) and body. `secret`: `whsec_` and base64."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    return "v1," + base64.b64encode(hmac.digest(key, f"{event_id}.{sent_at}.".encode() + body, "sha256")).decode()
