"""`@idempotent`: one execution for each key, whatever comes twice, at once, too late, or after a death."""

import functools
import threading
import time
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.template import engines
from django.template.response import TemplateResponse
from django.views import View

from agentruns.models import IdempotencyKey, received
from agentruns.receiving import idempotent
from tests.desk import Desk, age, asking, left_at_work, written
from tests.engine.hands import at_once

pytestmark = pytest.mark.django_db(transaction=True)
DAY = 86_400


@pytest.fixture
def desk() -> Desk:
    return Desk()


# --- the first, and those after it ------------------------------------------------------------------------------------


def test_a_second_request_gets_the_first_ones_answer_and_nothing_runs(desk):
    view = idempotent(desk)
    first, second = view(asking()), view(asking())
    assert (first.status_code, first.content) == (second.status_code, second.content) == (201, b'{"order": 1}')
    assert (first.headers["Content-Type"], second.headers["Content-Type"]) == ("application/json",) * 2
    assert "Idempotency-Replayed" not in first.headers and second.headers["Idempotency-Replayed"] == "true"
    assert (desk.runs, written()) == (1, 1)


def test_any_bytes_and_the_views_own_headers_come_back_and_cookies_do_not(desk):
    def answer(request):
        made = HttpResponse(bytes(range(256)), status=202, headers={"Location": "/orders/1", "X-Cups": "2"})
        made.set_cookie("session", "of the first who asked")
        return made

    desk.then(answer)
    view = idempotent(desk)
    view(asking())
    again = view(asking())
    assert again.content == bytes(range(256)) and again.status_code == 202
    assert (again.headers["Location"], again.headers["X-Cups"]) == ("/orders/1", "2")
    assert not again.cookies


def test_an_answer_without_a_content_type_is_replayed_without_one(desk):
    def nothing(request):
        made = HttpResponse(status=204)
        del made.headers["Content-Type"]
        return made

    desk.then(nothing)
    view = idempotent(desk)
    view(asking())
    assert "Content-Type" not in view(asking()).headers


def test_a_template_is_rendered_once_and_stored(desk):
    template = engines["django"].from_string("{{ word }}")
    desk.then(lambda request: TemplateResponse(request, template, {"word": f"run {desk.runs}"}))
    view = idempotent(desk)
    view(asking())
    assert view(asking()).content == b"run 1"


def test_other_keys_are_other_acts(desk):
    view = idempotent(desk)
    assert [view(asking(key=f"k-{number}")).content for number in (1, 2)] == [b'{"order": 1}', b'{"order": 2}']


def test_two_views_do_not_share_their_keys(desk):
    other = Desk(name="refund")
    other.then(lambda request: HttpResponse("refunded"))
    idempotent(desk)(asking())
    assert idempotent(other)(asking()).content == b"refunded"


def test_a_name_keeps_the_keys_of_a_view_that_moved(desk):
    idempotent(desk, name="order")(asking())
    assert idempotent(Desk(module="shop.orders"), name="order")(asking()).headers["Idempotency-Replayed"] == "true"


def test_two_users_do_not_share_their_keys(desk):
    view = idempotent(desk)
    for number, user in enumerate([User(pk=1), User(pk=2), AnonymousUser()], 1):
        request = asking()
        request.user = user
        assert view(request).content == b'{"order": %d}' % number


def test_a_caller_of_ones_own_says_whose_keys_they_are(desk):
    view = idempotent(desk, caller=lambda request: request.headers["X-Client"])
    answers = [view(asking(headers={"X-Client": name})).content for name in ("till", "shop", "till")]
    assert answers == [b'{"order": 1}', b'{"order": 2}', b'{"order": 1}']


def test_a_class_based_view_has_its_own_name():
    class Tea(View):
        def post(self, request):
            return HttpResponse("tea")

    class Coffee(View):
        def post(self, request):
            return HttpResponse("coffee")

    views = [idempotent(one.as_view()) for one in (Tea, Coffee)]
    assert [view(asking()).content for view in views] == [b"tea", b"coffee"]


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "TRACE"])
def test_what_only_looks_passes_every_time(desk, method):
    view = idempotent(desk)
    for _ in range(2):
        view(asking(method=method))
    assert desk.runs == 2 and not IdempotencyKey.objects.exists()


# --- at work ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("atomic", [True, False])
def test_fifty_at_once_are_one_execution(desk, atomic):
    view = idempotent(desk, atomic=atomic)
    answers = at_once(50, lambda _: view(asking()))
    assert (desk.runs, written()) == (1, 1)
    assert sorted({answer.status_code for answer in answers}) in ([201], [201, 409])
    assert {answer.content for answer in answers if answer.status_code == 201} == {b'{"order": 1}'}


def test_fifty_at_once_on_an_expired_key_are_one_execution(desk):
    view = idempotent(desk)
    view(asking())
    age(DAY + 1)
    answers = at_once(50, lambda _: view(asking()))
    assert (desk.runs, written()) == (2, 2)
    assert {answer.content for answer in answers if answer.status_code == 201} == {b'{"order": 2}'}
    assert {answer.status_code for answer in answers} <= {201, 409}


def test_fifty_at_once_on_a_dead_ones_key_are_one_execution(desk):
    view = idempotent(desk)
    left_at_work(view)
    age(61)
    answers = at_once(50, lambda _: view(asking()))
    assert (desk.runs, written()) == (1, 1)
    assert {answer.status_code for answer in answers} <= {201, 409}


class Slow:
    """A request in a thread of its own, held in the view until `let_go`."""

    def __init__(self, view: Any) -> None:
        self.inside, self.gate, self.answers = threading.Event(), threading.Event(), []
        desk = view.__wrapped__
        usual = desk.turn

        def hold(request: HttpRequest) -> Any:
            desk.turn = usual
            self.inside.set()
            assert self.gate.wait(20)
            return usual(request)

        desk.turn = hold
        self.thread = threading.Thread(target=self._ask, args=(view,))
        self.thread.start()
        assert self.inside.wait(20)

    def _ask(self, view: Any) -> None:
        try:
            self.answers.append(view(asking()))
        finally:
            connection.close()

    def let_go(self) -> Any:
        self.gate.set()
        self.thread.join(20)
        return self.answers[0]


@pytest.mark.parametrize("atomic", [True, False])
def test_while_the_first_is_at_work_the_second_is_told_to_come_back(desk, atomic):
    view = idempotent(desk, atomic=atomic)
    slow = Slow(view)
    second = view(asking())
    assert (second.status_code, second.headers["Retry-After"]) == (409, "2")
    assert second.headers["Content-Type"] == "application/problem+json"
    assert slow.let_go().status_code == 201
    assert view(asking()).headers["Idempotency-Replayed"] == "true"


def test_a_slow_one_that_lives_is_not_run_beside_itself(desk):
    view = idempotent(desk, stale=0.05)
    slow = Slow(view)
    time.sleep(0.1)
    answers: list[Any] = []
    second = threading.Thread(target=lambda: (answers.append(view(asking())), connection.close()))
    second.start()
    second.join(2 if connection.vendor == "postgresql" else 0.3)
    assert answers or connection.vendor == "sqlite"  # there the first one's transaction has the whole database
    assert slow.let_go().content == b'{"order": 1}'
    second.join(20)
    assert (answers[0].status_code, desk.runs, written()) in ((409, 1, 1), (201, 1, 1))


def test_one_without_a_transaction_that_was_overtaken_is_not_heard(desk):
    view = idempotent(desk, stale=0.05, atomic=False)
    slow = Slow(view)
    time.sleep(0.1)
    assert view(asking()).status_code == 201
    assert slow.let_go().status_code == 409
    assert desk.runs == 2
    assert view(asking()).headers["Idempotency-Replayed"] == "true"


def test_a_late_one_neither_locks_nor_finishes_nor_frees_the_key_that_another_has_by_now():
    begin = functools.partial(received.begin, "key", "fingerprint", about=None, life=DAY, stale=60)
    late, _ = begin()
    age(61)
    begin()
    with pytest.raises(received.AtWork):
        received.lock(late)
    with pytest.raises(received.AtWork):
        received.finish(late, {})
    received.free(late)
    assert IdempotencyKey.objects.get().state == "intent"
