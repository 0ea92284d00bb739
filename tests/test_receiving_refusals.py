"""What `@idempotent` refuses, and how it says so: other parameters under a key, odd keys, what it cannot store."""

import functools

import pytest
from django.http import HttpResponse, StreamingHttpResponse

from agentruns.models import IdempotencyKey
from agentruns.receiving import idempotent
from tests.desk import Desk, asking, written

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def desk() -> Desk:
    return Desk()


OTHERS = {
    "another method": asking(method="PUT"),
    "another path": asking(to="/orders/2"),
    "another query": asking(to="/orders?urgent=1"),
    "another value": asking(b'{"of": "tea", "cups": 3}'),
    "no JSON": asking(b'{"of": "tea", "cups": 2'),
    "other bytes": asking(b'{"of": "tea", "cups": 2}', content_type="text/plain"),
}


@pytest.mark.parametrize("request_", OTHERS.values(), ids=OTHERS)
def test_the_same_key_for_something_else_is_refused(desk, request_):
    view = idempotent(desk)
    view(asking())
    assert view(request_).status_code == 422
    assert desk.runs == 1


def test_json_is_the_same_however_it_is_written(desk):
    view = idempotent(desk)
    view(asking())
    again = view(asking(b'{ "cups": 2,\n "of": "\\u0074ea" }', content_type="application/json; charset=utf-8"))
    assert again.headers["Idempotency-Replayed"] == "true"


def test_a_body_that_claims_to_be_json_and_is_not_is_for_the_view_to_refuse(desk):
    desk.then(lambda request: HttpResponse("no JSON", status=400))
    view = idempotent(desk)
    for body in (b"\xff\xfe{", b"[" * 100_000):
        assert view(asking(body, key=f"k-{len(body)}")).content == b"no JSON"


MALFORMED = {
    "empty": "", "blank": "  ", "an empty string": '""', "half a quote": '"abc', "two keys": "abc,def",
    "two strings": '"abc", "def"', "parameters": '"abc";a=1', "a space": "a b", "beyond ASCII": "schlüssel",
    "256 characters": "k" * 256, "257 in quotes": f'"{"k" * 257}"', "a control character": "a\tb",
    "an escape of nothing": '"a\\n"',
}  # fmt: skip


@pytest.mark.parametrize("key", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_key_is_refused(desk, key):
    answer = idempotent(desk, required=False)(asking(key=key))
    assert (answer.status_code, answer.headers["Content-Type"]) == (400, "application/problem+json")
    assert b"Idempotency-Key is malformed" in answer.content and desk.runs == 0


@pytest.mark.parametrize(("bare", "quoted"), [("k" * 255, f'"{"k" * 255}"'), ("run:a/b~2", '"run:a/b~2"')])
def test_a_key_is_the_same_with_quotes_and_without(desk, bare, quoted):
    view = idempotent(desk)
    view(asking(key=bare))
    assert view(asking(key=quoted)).headers["Idempotency-Replayed"] == "true"


def test_a_quoted_key_may_have_any_visible_character(desk):
    view = idempotent(desk)
    view(asking(key='"a, \\"b\\"; \\\\"'))
    assert IdempotencyKey.objects.get().arguments["key"] == 'a, "b"; \\'


def test_a_missing_key_is_refused_where_one_is_required(desk):
    answer = idempotent(desk)(asking(key=None))
    assert answer.status_code == 400 and b"Idempotency-Key is missing" in answer.content
    assert desk.runs == 0


def test_a_missing_key_is_none_of_our_business_where_none_is_required(desk):
    view = idempotent(desk, required=False)
    assert [view(asking(key=None)).status_code for _ in range(2)] == [201, 201]
    assert not IdempotencyKey.objects.exists()


def test_large_bodies_and_multipart_are_refused(desk):
    view = idempotent(desk, body_bytes=100)
    assert view(asking(b"x" * 101)).status_code == 413
    assert view(asking(b"x", content_type="multipart/form-data; boundary=y")).status_code == 415
    assert desk.runs == 0 and not IdempotencyKey.objects.exists()


UNSTORABLE = {
    "a stream": (lambda request: StreamingHttpResponse([b"a"]), TypeError, "shop.views.order answered with a stream"),
    "too much": (lambda request: HttpResponse(b"x" * 101), ValueError, "101 bytes; @idempotent stores at most 100"),
    "nothing": (lambda request: None, TypeError, "shop.views.order returned NoneType"),
}


@pytest.mark.parametrize(("turn", "error", "said"), UNSTORABLE.values(), ids=UNSTORABLE)
def test_an_answer_that_cannot_be_stored_is_an_error_and_nothing_is_written(desk, turn, error, said):
    desk.then(turn)
    with pytest.raises(error, match=said):
        idempotent(desk, answer_bytes=100)(asking())
    assert written() == 0 and not IdempotencyKey.objects.exists()


@pytest.mark.once
def test_what_cannot_be_guarded_is_refused_when_it_is_decorated(desk):
    async def order(request):
        return HttpResponse()

    with pytest.raises(TypeError, match="is async"):
        idempotent(order)
    with pytest.raises(ValueError, match="has no name of its own"):
        idempotent(functools.partial(desk))
    for stale, life in ((0, 10), (10, 10), (-1, 10)):
        with pytest.raises(ValueError, match=f"stale={stale} s must be above 0 and below life={life} s"):
            idempotent(desk, stale=stale, life=life)
