"""`@idempotent` itself: whose request runs the view, and what becomes of the view's writes and its answer."""

import functools
import hashlib
import inspect
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from agentruns import encoding
from agentruns.models import IdempotencyKey, received
from agentruns.receiving import answered, asked

View = Callable[..., Any]
SAFE_METHODS = ("GET", "HEAD", "OPTIONS", "TRACE")


def signed_in(request: HttpRequest) -> str:
    """The caller as Django's own authentication knows him; without one, all callers share their keys."""
    user = getattr(request, "user", None)
    return f"user:{user.pk}" if user is not None and user.is_authenticated else ""


def idempotent(
    view: View | None = None, /, *, required: bool = True, atomic: bool = True, life: float = 86_400, stale: float = 60,
    caller: Callable[[HttpRequest], str] = signed_in, name: str = "", body_bytes: int = 2**20,
    answer_bytes: int = 2**20,
) -> Any:  # fmt: skip
    """Decorates a view: `@idempotent`, or `@idempotent(life=3600)`. It stands nearest to the function, under whatever
    decides who may call.

    The first request with a key runs the view, and its answer is stored. Every later one within `life` seconds of it
    gets that answer, with `Idempotency-Replayed: true`; 409 and Retry-After while the first is at work; 422 if method,
    path, query or body differ (JSON is compared by value). A malformed header gets 400, as does a missing one, unless
    `required` is False: then the view just runs. GET, HEAD, OPTIONS and TRACE pass without a look.

    Kept are answers of 2xx, 3xx and 4xx, without cookies. Not kept are 401, 403, 408, 409, 423, 425, 429, 5xx, and
    whatever the view raises, Http404 too: the key is free, and the same request may be sent again.

    `atomic`: the view's writes (to the database with agentruns' tables) and its answer are one transaction, and what is
    not kept is rolled back: exactly once, whoever dies when. Without it the view runs again if its process died before
    the answer was stored, or took longer than `stale` seconds: after those a key whose request is not heard of is given
    to the next one.

    `caller(request)`: whose keys these are; an id that lasts, not a token that may be another one at the next try.
    `name`: of the view, for ever; by default its dotted name, so that moving it forgets its keys. A request of over
    `body_bytes` gets 413; an answer of over `answer_bytes`, or a stream, is an error of the view.
    """

    def decorate(view: View) -> View:
        guard = Guard(view, name or dotted_name(view), required, atomic, life, stale, caller, body_bytes, answer_bytes)

        @functools.wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            return guard.answer(request, *args, **kwargs)

        # Under ATOMIC_REQUESTS Django's own transaction would be around ours, and nobody would see that we are at work.
        return transaction.non_atomic_requests(guarded)

    return decorate if view is None else decorate(view)


def dotted_name(view: View) -> str:
    """Of a function, or of the class behind `as_view()`."""
    named = getattr(view, "view_class", view)
    if not hasattr(named, "__qualname__"):
        raise ValueError(f"{view!r} has no name of its own to keep its keys under. Give one: idempotent(view, name=…).")
    return f"{named.__module__}.{named.__qualname__}"


class NotKept(Exception):
    """Carries an answer that is given but not stored out of the view's transaction, which it undoes."""

    def __init__(self, answer: HttpResponse) -> None:
        self.answer = answer
        super().__init__(str(answer.status_code))


@dataclass(frozen=True)
class Guard:
    """One decorated view; the fields are the options of `idempotent`. Read `answer`."""

    view: View
    name: str
    required: bool
    atomic: bool
    life: float
    stale: float
    caller: Callable[[HttpRequest], str]
    body_bytes: int
    answer_bytes: int

    def __post_init__(self) -> None:
        if inspect.iscoroutinefunction(self.view):
            raise TypeError(f"{self.name} is async. Make it a plain def; Django runs it in a thread of its own.")
        if not 0 < self.stale < self.life:
            raise ValueError(f"{self.name}: stale={self.stale!r} s must be above 0 and below life={self.life!r} s.")

    def answer(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        run = functools.partial(self.view, request, *args, **kwargs)
        try:
            if request.method in SAFE_METHODS or (key := self.key(request)) is None:
                return run()
            row, is_ours = self.begin(request, key)
            return self.act(row, run) if is_ours else answered.replayed(row.answer)
        except asked.Refused as refused:
            return refused.answer
        except received.AtWork:
            return asked.outstanding().answer

    def key(self, request: HttpRequest) -> str | None:
        """None: there is none, and none is required."""
        key = asked.key_of(request)
        if key is None and self.required:
            raise asked.missing()
        return key

    def begin(self, request: HttpRequest, key: str) -> tuple[IdempotencyKey, bool]:
        """The row of this key, and whether it is ours to act; else it is done. Raises Refused, AtWork."""
        caller = str(self.caller(request))
        digest = hashlib.sha256(encoding.canonical([self.name, caller, key]).encode()).hexdigest()
        fingerprint = asked.fingerprint_of(request, self.body_bytes)
        row, is_ours = received.begin(
            f"{self.name[:200]}:{digest}", fingerprint, life=self.life, stale=self.stale,
            about={"key": key, "caller": caller, "request": f"{request.method} {request.path}"},
        )  # fmt: skip
        if not is_ours and row.fingerprint != fingerprint:
            raise asked.used()
        if not is_ours and row.state != "done":
            raise asked.outstanding()
        return row, is_ours

    def act(self, row: IdempotencyKey, run: Callable[[], Any]) -> HttpResponse:
        """The view's answer, stored; or not kept, and then nothing that it wrote either (with `atomic`).

        A COMMIT whose answer was lost leaves by an exception; `free` finds the row done then, or nothing happened.
        """
        try:
            with transaction.atomic(durable=True) if self.atomic else nullcontext():
                if self.atomic:
                    received.lock(row)
                answer = answered.rendered(run(), self.name)
                if not answered.is_kept(answer):
                    raise NotKept(answer)
                received.finish(row, answered.stored(answer, self.name, self.answer_bytes))
        except received.AtWork:
            raise
        except NotKept as not_kept:
            received.free(row)
            return not_kept.answer
        except Exception:
            received.free(row)
            raise
        return answer
