"""What a provider tells us by itself: `/webhooks/openai`. It makes us look sooner; what it says is never taken as true.

The clock asks without it, too. A webhook only moves a call's next look to now, or names a response that no call knows
the id of, because the worker died between sending and learning it (adoption.py).
"""

import json
import logging
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, UnreadablePostError
from django.views.decorators.csrf import csrf_exempt

from agentruns.models import announced
from agentruns.web import signature

log = logging.getLogger(__name__)

BODY_BYTES = 2**20
# By the text of the type: what is newer than this code is not for it. None says anything that we would believe.
ENDINGS = ("response.completed", "response.failed", "response.incomplete", "response.cancelled")
LONGEST_RESPONSE_ID = 1000  # as long as Call.response_id


class Refused(Exception):
    """`status` and the message are the answer; nothing is stored."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


@csrf_exempt
@login_not_required
def openai(request: HttpRequest) -> HttpResponse:
    """200 once an event is committed, was known, or is none of ours; 400, 401 or 413 for what is not to be believed."""
    if not settings.OPENAI_WEBHOOK_SECRET:
        return said(404, "No webhooks here: OPENAI_WEBHOOK_SECRET is not set.")
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    try:
        event_id, event = believed(request)
        if event["type"] not in ENDINGS:
            return said(200, "Not for us.")
        is_new = announced.keep(event_id, event["type"], response_id_in(event))
    except (signature.Unsigned, Refused) as refused:
        return said(refused.status, str(refused))
    return said(200, "Thank you." if is_new else "Known.")


def believed(request: HttpRequest) -> tuple[str, dict[str, Any]]:
    """The event and its id, checked from the cheapest look on, so that a flood of forged ones costs little."""
    event_id = signature.recent_id(request.headers)
    body = body_of(request)
    signature.check(settings.OPENAI_WEBHOOK_SECRET, request.headers, body)
    try:
        event = json.loads(body)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict) or not isinstance(event.get("type"), str):
        raise Refused(400, "The body is no JSON object with a type.")
    return event_id, event


def body_of(request: HttpRequest) -> bytes:
    """Raises Refused for a body that is too large, before it is read, or that ends early."""
    length = request.META.get("CONTENT_LENGTH") or "0"
    if not length.isdecimal() or int(length) > BODY_BYTES:
        raise Refused(413, f"A webhook has at most {BODY_BYTES:,} bytes.")
    try:
        return request.body
    except UnreadablePostError:
        raise Refused(400, "The body ended early.") from None


def response_id_in(event: dict[str, Any]) -> str:
    found = event["data"].get("id") if isinstance(event.get("data"), dict) else None
    if isinstance(found, str) and found.isascii() and found.isprintable() and 0 < len(found) <= LONGEST_RESPONSE_ID:
        return found
    log.warning("A signed webhook of type %s names no response that could be asked for.", event["type"])
    raise Refused(400, "Its data.id is no response id.")


def said(status: int, words: str) -> HttpResponse:
    return HttpResponse(f"{words}\n", status=status, content_type="text/plain; charset=utf-8")
