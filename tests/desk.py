"""What tests of `@idempotent` share: a view that counts, requests to it, and how old its key is."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.http import HttpRequest, JsonResponse
from django.test import RequestFactory

from agentruns.models import IdempotencyKey
from agentruns.models.moment import in_seconds


class Desk:
    """A view that writes a Group for each execution, and then does what it is told to."""

    def __init__(self, module: str = "shop.views", name: str = "order") -> None:
        self.__module__, self.__qualname__ = module, name
        self.runs = 0
        self.turn: Callable[[HttpRequest], Any] = lambda request: JsonResponse({"order": self.runs}, status=201)

    def __call__(self, request: HttpRequest) -> Any:
        self.runs += 1
        Group.objects.create(name=f"{self.__qualname__} {self.runs}")
        return self.turn(request)

    def then(self, turn: Callable[[HttpRequest], Any]) -> None:
        self.turn = turn


def asking(body: Any = None, *, key: str | None = "k-1", method: str = "POST", to: str = "/orders", **more: Any) -> Any:
    headers = more.pop("headers", {}) | ({"Idempotency-Key": key} if key is not None else {})
    return RequestFactory().generic(
        method, to, *([body] if isinstance(body, bytes) else [b'{"of": "tea", "cups": 2}']),
        content_type=more.pop("content_type", "application/json"), headers=headers, **more,
    )  # fmt: skip


def written() -> int:
    """How many executions are committed."""
    return Group.objects.count()


def age(seconds: float) -> None:
    """The row was begun so many seconds ago."""
    assert IdempotencyKey.objects.update(created_at=in_seconds(-seconds)) == 1


def left_at_work(view: Any) -> None:
    """The row of a request whose process died in the view."""

    class Killed(BaseException):
        pass

    def die(request: HttpRequest) -> None:
        raise Killed

    desk = view.__wrapped__
    before, desk.turn = desk.turn, die
    with pytest.raises(Killed):
        view(asking())
    desk.turn, desk.runs = before, 0
    assert IdempotencyKey.objects.get().state == "intent"
