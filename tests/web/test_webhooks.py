"""/webhooks/openai: believed only when signed, kept once whatever is sent again, and never more than a hint to look."""

import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.handlers.wsgi import WSGIRequest
from django.db import OperationalError, connection
from django.http import UnreadablePostError
from django.test import Client
from django.test.utils import CaptureQueriesContext

from agentruns import environment
from agentruns.models import Call, IdempotencyKey, Run
from agentruns.models.moment import in_seconds, now
from agentruns.web import signature
from tests import plans_for_tests
from tests.engine import hands
from tests.webhooks import OTHER_SECRET, SECRET, URL, deliver, event, headers, post, stored
from tests.webhooks import signature as signed

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def secret(settings: Any) -> None:
    settings.OPENAI_WEBHOOK_SECRET = SECRET


@pytest.fixture
def call(ada: User) -> Call:
    """In flight, and not to be asked for before an hour has passed."""
    run = plans_for_tests.claimed(Run.start("two", "Tides", model="demo", owner=ada))
    call = hands.call_in_flight(run, "first/ask")
    Call.objects.filter(pk=call.pk).update(poll_at=in_seconds(3600))
    return call


def is_due(call: Call) -> bool:
    return Call.objects.filter(pk=call.pk, poll_at__lte=now()).exists()


# --- what is believed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["completed", "failed", "incomplete", "cancelled"])
def test_an_ending_makes_its_call_due_and_settles_nothing(call: Call, kind: str):
    before = Call.objects.filter(pk=call.pk).values().get()
    assert deliver(call.response_id, kind=f"response.{kind}") == 200
    assert is_due(call)
    after = Call.objects.filter(pk=call.pk).values().get()
    assert {name for name in after if after[name] != before[name]} == {"poll_at"}
    assert stored() == {"wh_1": "done"}


def test_an_event_before_its_id_is_stored_is_kept_for_the_clock():
    assert deliver("resp_of_somebody") == 200
    row = IdempotencyKey.objects.get()
    assert (row.state, row.arguments) == ("intent", {"type": "response.completed", "response": "resp_of_somebody"})


def test_the_same_event_fifty_times_at_once_is_one_row_and_fifty_times_200(call: Call):
    answers = hands.at_once(50, lambda _: deliver(call.response_id))
    assert Counter(answers) == {200: 50}
    assert stored() == {"wh_1": "done"}
    assert is_due(call)


def test_events_in_any_order_are_each_kept_once(call: Call):
    kinds = ("response.completed", "response.failed", "response.cancelled")
    order = [(f"wh_{number}", kind) for number, kind in enumerate(kinds)] * 2
    assert [deliver(call.response_id, *one) for one in reversed(order)] == [200] * 6
    assert stored() == {"wh_0": "done", "wh_1": "done", "wh_2": "done"}


def test_an_event_that_was_sent_again_moves_no_call(call: Call):
    deliver(call.response_id)
    Call.objects.filter(pk=call.pk).update(poll_at=in_seconds(3600))
    assert deliver(call.response_id) == 200
    assert not is_due(call)


def test_what_is_newer_than_we_are_is_answered_and_not_stored():
    assert [deliver("x", kind=kind) for kind in ("batch.completed", "response.created", "")] == [200] * 3
    assert stored() == {}


def test_it_is_answered_only_once_it_is_committed(call: Call):
    """A database that fails at the write gets no 2xx: the provider sends the event again."""
    with (
        hands.failing(OperationalError("the server closed the connection"), on="UPDATE"),
        pytest.raises(OperationalError),
    ):
        deliver(call.response_id)
    assert stored() == {}
    assert deliver(call.response_id) == 200


# --- what is not ------------------------------------------------------------------------------------------------------


def test_several_signatures_are_tried_while_a_secret_is_changed():
    body = event("resp_1")
    sent = headers(body)
    good = sent["webhook-signature"]
    bad = signed(body, "wh_1", sent["webhook-timestamp"], OTHER_SECRET)
    for several, status in ((f"{bad} v1a,ed25519 {good}", 200), (f"{bad} v2,{good[3:]} v1,", 401), (good[3:], 401)):
        assert post(body, sent | {"webhook-signature": several}) == status


def test_the_published_example_of_standard_webhooks_is_right(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("agentruns.web.signature.time.time", lambda: 1614265330.0)
    sent = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    assert signature.recent_id(sent) == sent["webhook-id"]
    signature.check("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", sent, b'{"test": 2432232314}')


BODY = event("resp_1")
DEEP, LARGE = b"[" * 100_000, b" " * (2**20 + 1)
# Signed when the test runs, not when it is collected.
FORGED: dict[str, tuple[int, bytes, Callable[[bytes], dict[str, str]]]] = {
    "another secret": (401, BODY, lambda body: headers(body, secret=OTHER_SECRET)),
    "another body": (401, event("resp_2"), lambda body: headers(BODY)),
    "truncated": (401, BODY[:-9], lambda body: headers(BODY)),
    "another id": (401, BODY, lambda body: headers(body) | {"webhook-id": "wh_2"}),
    "another time": (401, BODY, lambda body: headers(body) | {"webhook-timestamp": str(int(time.time()) - 9)}),
    "no signature": (400, BODY, lambda body: headers(body) | {"webhook-signature": ""}),
    "a signature of letters": (401, BODY, lambda body: headers(body) | {"webhook-signature": "v1,\xe9\xe8"}),
    "no id": (400, BODY, lambda body: headers(body) | {"webhook-id": ""}),
    "an id that is too long": (400, BODY, lambda body: headers(body, "x" * 256)),
    "a time that is none": (400, BODY, lambda body: headers(body) | {"webhook-timestamp": "soon"}),
    "a time without end": (400, BODY, lambda body: headers(body) | {"webhook-timestamp": "9" * 4000}),
    "old": (400, BODY, lambda body: headers(body, age=310)),
    "from the future": (400, BODY, lambda body: headers(body, age=-310)),
    "no JSON": (400, b"{", headers),
    "a list": (400, b"[]", headers),
    "JSON a mile deep": (400, DEEP, headers),
    "a type that is a number": (400, b'{"type": 1}', headers),
    "no response": (400, b'{"type": "response.failed"}', headers),
    "a response without a name": (400, event(""), headers),
    "a response with a zero byte": (400, event("resp\0"), headers),
    "too large": (413, LARGE, headers),
}


@pytest.mark.parametrize(("status", "body", "sent"), FORGED.values(), ids=FORGED)
def test_what_is_forged_old_or_broken_is_refused_and_nothing_is_stored(
    status: int, body: bytes, sent: Callable[[bytes], dict[str, str]]
):
    assert post(body, sent(body)) == status
    assert stored() == {}


def test_a_flood_of_forged_ones_stores_nothing_and_does_not_ask_the_database(call: Call):
    logging.getLogger("django.request").setLevel(logging.ERROR)
    try:
        with CaptureQueriesContext(connection) as asked:
            answers = Counter(deliver(call.response_id, f"wh_{n}", secret=OTHER_SECRET) for n in range(300))
    finally:
        logging.getLogger("django.request").setLevel(logging.NOTSET)
    assert answers == {401: 300}
    assert len(asked) < 10  # the guard's look at the schema, once for all
    assert stored() == {}
    assert not is_due(call)


def test_a_body_that_ends_early_is_refused(monkeypatch: pytest.MonkeyPatch):
    def cut(self: WSGIRequest) -> bytes:
        raise UnreadablePostError("client disconnected")

    monkeypatch.setattr(WSGIRequest, "body", property(cut))
    assert deliver("resp_1") == 400
    assert stored() == {}


# --- the address ------------------------------------------------------------------------------------------------------


def test_without_a_secret_there_is_no_such_address(settings: Any):
    settings.OPENAI_WEBHOOK_SECRET = ""
    assert Client().get(URL).status_code == 404
    assert deliver("resp_1") == 404


def test_looking_at_it_is_no_way_to_use_it():
    assert {Client().generic(method, URL).status_code for method in ("GET", "HEAD", "PUT", "DELETE")} == {405}


@pytest.mark.parametrize("wrong", ["whsec_", "whsec_no base64", "whsec_YWJj=", "c2VjcmV0", "sk-1"])
def test_a_secret_that_can_be_none_is_named_and_not_shown(wrong: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(environment, "problems", [])
    monkeypatch.setenv("OPENAI_WEBHOOK_SECRET", wrong)
    assert environment.webhook_secret("OPENAI_WEBHOOK_SECRET") == ""
    (problem,) = environment.problems
    assert "OPENAI_WEBHOOK_SECRET" in problem.message
    assert wrong.removeprefix("whsec_") not in f"{problem.message} {problem.hint}" or wrong == "whsec_"
