"""`@idempotent` when a request dies, fails, or is long ago: what is undone, what is kept, whose the key is then."""

import pytest
from django.contrib.auth.models import Group
from django.core.exceptions import PermissionDenied
from django.db import OperationalError, connection, transaction
from django.http import Http404, HttpResponse, JsonResponse
from django.urls import path

from agentruns.models import IdempotencyKey
from agentruns.receiving import idempotent
from tests.desk import Desk, age, asking, left_at_work, written
from tests.engine.hands import this_line

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def desk() -> Desk:
    return Desk()


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
