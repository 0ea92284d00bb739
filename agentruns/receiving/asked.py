"""What a request under an Idempotency-Key asks for: its key, its fingerprint, and the refusals that say what is wrong.

As the IETF's draft-ietf-httpapi-idempotency-key-header has it.
"""

import hashlib
import json
import re
from typing import Any

from django.http import HttpRequest, JsonResponse

from agentruns import encoding

# As the draft writes it, a quoted string (RFC 8941); or bare, as most clients send it.
QUOTED = re.compile(r'"((?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\])+)"')
BARE = re.compile(r"[\x21-\x7e]+")
AMBIGUOUS = set('",;\\')
LONGEST_KEY = 255
RETRY_AFTER_SECONDS = 2
DRAFT = "https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/"


class Refused(Exception):
    """The request gets no answer of the view's; `answer` says why (application/problem+json)."""

    def __init__(self, status: int, title: str, detail: str, headers: dict[str, str] | None = None) -> None:
        body = {"type": DRAFT, "title": title, "status": status, "detail": detail}
        self.answer = JsonResponse(body, status=status, headers=headers, content_type="application/problem+json")
        super().__init__(title)


def key_of(request: HttpRequest) -> str | None:
    """The key without its quotes; None where there is no header. Raises Refused for a malformed or a doubled one."""
    header = request.headers.get("Idempotency-Key")
    if header is None:
        return None
    key, header = "", header.strip()
    if quoted := QUOTED.fullmatch(header):
        key = re.sub(r"\\(.)", r"\1", quoted[1])
    elif BARE.fullmatch(header) and not AMBIGUOUS & set(header):  # a server joins doubled headers by a comma
        key = header
    if not 0 < len(key) <= LONGEST_KEY:
        raise Refused(
            400, "Idempotency-Key is malformed",
            f"Send one key of 1 to {LONGEST_KEY} visible ASCII characters, in double quotes; bare, if it has none of "
            '",;\\ in it.',
        )  # fmt: skip
    return key


def fingerprint_of(request: HttpRequest, body_bytes: int) -> str:
    """Of method, path with query, and body; 64 hex digits. Raises Refused for a body that has none."""
    return encoding.fingerprint([request.method, request.get_full_path(), canonical_body(request, body_bytes)])


def canonical_body(request: HttpRequest, body_bytes: int) -> Any:
    """JSON by its value, so that spaces and the order of keys do not matter; any other body by its bytes."""
    content_type = request.content_type or ""
    if content_type.startswith("multipart/"):
        raise Refused(415, "No multipart here", "Its boundary differs with each sending. Send JSON, or a plain form.")
    if len(request.body) > body_bytes:
        raise Refused(413, "The body is too large", f"It has {len(request.body):,} bytes of at most {body_bytes:,}.")
    if content_type.endswith("json"):
        try:
            return ["json", encoding.canonical(json.loads(request.body))]
        except (ValueError, RecursionError):
            pass  # no JSON after all: the view will say so
    return ["bytes", hashlib.sha256(request.body).hexdigest()]


def missing() -> Refused:
    return Refused(400, "Idempotency-Key is missing", "Send a header Idempotency-Key: one key for each act.")


def used() -> Refused:
    return Refused(
        422, "Idempotency-Key is already used",
        "This key came with another method, path, query or body before. Send a new key with a new act.",
    )  # fmt: skip


def outstanding() -> Refused:
    return Refused(
        409, "A request is outstanding for this Idempotency-Key",
        "An earlier request with this key is at work, or has died there. Send the same one again a little later.",
        headers={"Retry-After": str(RETRY_AFTER_SECONDS)},
    )  # fmt: skip
