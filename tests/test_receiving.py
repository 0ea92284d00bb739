"""`@idempotent`: one execution for each key, whatever comes twice, at once, too late, or after a death."""

import functools
import threading
import time
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, Group, User
from django.core.exceptions import PermissionDenied
from django.db import OperationalError, connection, transaction
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.template import engines
from django.template.response import TemplateResponse
from django.urls import path
from django.views import View

from agentruns.models import IdempotencyKey, received
from agentruns.receiving import idempotent
from tests.desk import Desk, age, asking, written
from tests.engine.hands import at_once, this_line

pytestmark = pytest.mark.django_db(transaction=True)
DAY = 86_400


@pytest.fixture
def desk() -> Desk:
    return Desk()


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


# --- deaths, failures, expiry -----------------------------------------------------------------------------------------


def test_a_dead_ones_key_is_at_work_until_it_is_stale(desk):
    view = idempotent(desk, stale=60)
    left_at_work(view)
    assert written() == 0
    age(59)
    assert view(asking()).status_code == 409
    age(61)
    assert view(asking()).content == b'{"order": 1}'
    assert (desk.runs, written()) == (1, 1)


def test_a_dead_ones_key_is_not_for_other_parameters(desk):
    view = idempotent(desk)
    left_at_work(view)
    age(61)
    assert view(asking(b'{"of": "coffee"}')).status_code == 422
    assert desk.runs == 0


def test_an_expired_key_is_a_new_one_whatever_it_asks_for(desk):
    view = idempotent(desk, life=100)
    view(asking())
    age(99)
    assert view(asking(b'{"of": "coffee"}')).status_code == 422
    age(101)
    assert view(asking(b'{"of": "coffee"}')).content == b'{"order": 2}'
    assert view(asking()).status_code == 422


def fails(request):
    raise ZeroDivisionError("in the view")


def not_found(request):
    raise Http404("no such tea")


def denied(request):
    raise PermissionDenied


@pytest.mark.parametrize("turn", [fails, not_found, denied])
@pytest.mark.parametrize("atomic", [True, False])
def test_what_the_view_raises_frees_the_key(desk, turn, atomic):
    usual = desk.turn
    desk.then(turn)
    view = idempotent(desk, atomic=atomic)
    with pytest.raises((ZeroDivisionError, Http404, PermissionDenied)):
        view(asking())
    assert (written() == 0) is atomic
    desk.then(usual)
    assert view(asking()).content == b'{"order": 2}'


@pytest.mark.parametrize("status", [401, 403, 408, 409, 423, 425, 429, 500, 502, 503])
def test_an_answer_that_may_be_another_one_soon_is_given_undone_and_not_kept(desk, status):
    usual = desk.turn
    desk.then(lambda request: HttpResponse("not now", status=status))
    view = idempotent(desk)
    assert (view(asking()).status_code, written()) == (status, 0)
    desk.then(usual)
    assert view(asking()).status_code == 201


@pytest.mark.parametrize("status", [200, 204, 303, 400, 402, 404, 410, 422])
def test_any_other_answer_is_kept_with_what_was_written(desk, status):
    desk.then(lambda request: HttpResponse(status=status))
    view = idempotent(desk)
    assert [view(asking()).status_code for _ in range(2)] == [status, status]
    assert (desk.runs, written()) == (1, 1)


def test_a_commit_that_landed_without_an_answer_is_replayed(desk, monkeypatch):
    line = this_line(monkeypatch)
    view = idempotent(desk)
    line.commits, line.lost = 0, {2}  # 1: the key; 2: the view's
    with pytest.raises(OperationalError):
        view(asking())
    assert view(asking()).headers["Idempotency-Replayed"] == "true"
    assert (desk.runs, written()) == (1, 1)


def test_a_commit_that_was_refused_leaves_nothing(desk, monkeypatch):
    line = this_line(monkeypatch)
    view = idempotent(desk)
    line.commits, line.refused = 0, {2}
    with pytest.raises(OperationalError):
        view(asking())
    assert view(asking()).content == b'{"order": 2}'
    assert written() == 1


def test_a_damaged_answer_does_not_run_the_view_again(desk):
    view = idempotent(desk)
    view(asking())
    with connection.cursor() as cursor:
        cursor.execute("UPDATE agentruns_idempotencykey SET answer = '{\"stat'")
    assert view(asking()).status_code == 500
    assert desk.runs == 1


# --- as Django calls it -----------------------------------------------------------------------------------------------


@idempotent(name="routed")
def routed(request, number):
    Group.objects.create(name=f"routed {number}")
    return JsonResponse({"in a transaction of Django's": len(connection.savepoint_ids) > 0})


urlpatterns = [path("routed/<int:number>", routed)]


def test_it_works_under_atomic_requests(client, settings):
    settings.ROOT_URLCONF, settings.MIDDLEWARE = __name__, []
    settings.DATABASES["default"]["ATOMIC_REQUESTS"] = connection.settings_dict["ATOMIC_REQUESTS"] = True
    try:
        for _ in range(2):
            answer = client.post(
                "/routed/7", {"a": 1}, content_type="application/json", headers={"Idempotency-Key": "k"}
            )
            assert answer.json() == {"in a transaction of Django's": False}
    finally:
        connection.settings_dict["ATOMIC_REQUESTS"] = False
    assert answer.headers["Idempotency-Replayed"] == "true" and written() == 1


def test_inside_somebodys_transaction_it_refuses_to_begin(desk):
    with transaction.atomic(), pytest.raises(RuntimeError, match="durable"):
        idempotent(desk)(asking())
    assert desk.runs == 0


def test_what_the_view_left_for_after_the_commit_runs_once_and_after_it(desk):
    seen = []
    usual = desk.turn

    def order(request):
        transaction.on_commit(lambda: seen.append(IdempotencyKey.objects.get().state))
        return usual(request)

    desk.then(order)
    view = idempotent(desk)
    view(asking()), view(asking())
    assert seen == ["done"]
