"""What a view answered: whether it is kept, and how it is stored and sent again, byte for byte."""

from typing import Any

from django.http import HttpResponse
from django.http.response import ResponseHeaders

from agentruns.models.fields import Corrupt
from agentruns.receiving.asked import Refused

# Besides 5xx: "not you", "not now", "too often". The same request may well succeed a little later.
NOT_KEPT = {401, 403, 408, 409, 423, 425, 429}


def is_kept(answer: HttpResponse) -> bool:
    return answer.status_code < 500 and answer.status_code not in NOT_KEPT


def rendered(answer: Any, name: str) -> HttpResponse:
    """A view's answer with its content made. Raises TypeError for one that cannot be stored; `name` is the view's."""
    if getattr(answer, "streaming", False):
        raise TypeError(
            f"{name} answered with a stream, which cannot be stored and sent again. "
            "Return an HttpResponse, or take @idempotent away."
        )
    if not isinstance(answer, HttpResponse):
        raise TypeError(f"{name} returned {type(answer).__name__}; a view returns an HttpResponse.")
    if callable(render := getattr(answer, "render", None)):
        render()
    return answer


def stored(answer: HttpResponse, name: str, answer_bytes: int) -> dict[str, Any]:
    """Status, body and the headers that the view set; no cookies: they are for the first who asked."""
    if (size := len(answer.content)) > answer_bytes:
        raise ValueError(
            f"{name} answered with {size:,} bytes; @idempotent stores at most {answer_bytes:,}. "
            "Answer with an id or a link, or raise answer_bytes."
        )
    return {
        "status": answer.status_code,
        "headers": dict(answer.headers),
        # Text stays readable in the admin, and any bytes come back as they were (PEP 383).
        "body": answer.content.decode("utf-8", "surrogateescape"),
    }


def replayed(kept: Any) -> HttpResponse:
    """The stored answer once more. Raises Refused where the row was damaged: what was done is not done again for it."""
    if isinstance(kept, Corrupt):
        raise Refused(500, "The stored answer cannot be read", "The act was done, and is not done again.")
    again = HttpResponse(kept["body"].encode("utf-8", "surrogateescape"), status=kept["status"])
    again.headers = ResponseHeaders(kept["headers"])
    again.headers["Idempotency-Replayed"] = "true"
    return again
