"""The page of what waits for a person: what is shown, who may say what, and that nothing typed is lost."""

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from agentruns.models import Run, Wait
from agentruns.web.approvals import CONFIRMED
from tests import plans_for_tests as hands
from tests.web.conftest import PASSWORD

pytestmark = pytest.mark.django_db
PATH = "first/go"


@pytest.fixture
def waiting(ada: User) -> Run:
    """A run of ada's that waits for a yes; she may give it."""
    ada.user_permissions.add(Permission.objects.get(codename="approve_run"))
    run = hands.parked(hands.claimed(Run.start("two", "Tides", model="demo", owner=ada)), "approval", PATH)
    payload = {"effect": "shop.pay", "arguments": ["5 USD", "to \u202ebob"], "labels": ["external"], "reason": ""}
    Wait.objects.filter(run=run).update(payload=payload, payload_sha256="a" * 64)
    return run


def say(client: Client, run: Run, word: str, **more: str):
    return client.post(f"/runs/{run.pk}/say", {"path": PATH, "sha256": "a" * 64, "word": word, **more})


def test_it_shows_exactly_what_a_yes_is_for(client: Client, waiting: Run):
    html = client.get("/approvals/").content.decode()
    assert "Call shop.pay?" in html
    assert "5 USD" in html
    assert "⟨U+202E⟩bob" in html
    assert "content from outside" in html


def test_a_yes_is_given_once_and_the_run_goes_on(client: Client, waiting: Run):
    assert say(client, waiting, "approve").status_code == 303
    waiting.refresh_from_db()
    assert waiting.status == "queued"
    assert say(client, waiting, "approve").status_code == 422
    assert waiting.grants.count() == 1


def test_a_no_needs_a_reason_which_is_kept(client: Client, waiting: Run):
    assert "Say why it is rejected" in say(client, waiting, "reject").content.decode()
    assert say(client, waiting, "reject", text="no, because").status_code == 303
    assert Run.objects.get(pk=waiting.pk).grants.filter(given=False, reason="no, because").exists()


def test_what_changed_since_it_was_looked_at_is_not_approved_and_the_text_stays(client: Client, waiting: Run):
    answer = say(client, waiting, "approve", sha256="b" * 64, text="I had written this")
    assert answer.status_code == 422
    assert "changed since you looked" in answer.content.decode()
    assert "I had written this" in answer.content.decode()
    assert not waiting.grants.exists()


def test_without_a_recent_password_it_is_asked_for(client: Client, waiting: Run):
    session = client.session  # signing in was a confirmation
    session[CONFIRMED] = 0
    session.save()
    assert 'name="password"' in client.get("/approvals/").content.decode()
    assert say(client, waiting, "approve").status_code == 422
    assert say(client, waiting, "approve", password="wrong").status_code == 422
    assert not waiting.grants.exists()
    assert say(client, waiting, "approve", password=PASSWORD).status_code == 303
    assert waiting.grants.get().given


def test_who_may_not_decide_may_look(client: Client, ada: User, waiting: Run):
    ada.user_permissions.clear()
    html = client.get("/approvals/").content.decode()
    assert "You may look, and not decide" in html
    assert say(client, waiting, "approve").status_code == 422
    assert not waiting.grants.exists()


def test_somebody_elses_run_is_neither_listed_nor_decided(client: Client, bob: User):
    run = hands.parked(hands.claimed(Run.start("two", "Bob's", model="demo", owner=bob)), "approval", PATH)
    Wait.objects.filter(run=run).update(payload_sha256="a" * 64)
    assert "Nothing waits for you" in client.get("/approvals/").content.decode()
    assert say(client, run, "approve").status_code == 404


def test_a_question_is_answered_in_words(client: Client, ada: User, waiting: Run):
    payload = {"effect": "question", "arguments": "Which one?"}
    Wait.objects.filter(run=waiting).update(kind="operator", payload=payload)
    assert "Which one?" in client.get("/approvals/").content.decode()
    assert say(client, waiting, "answer", text="the blue one").status_code == 303
    assert waiting.grants.get().reason == "the blue one"


def test_every_page_says_how_many_wait(client: Client, waiting: Run):
    assert '1<span class="vh"> waiting' in client.get("/plans/").content.decode()
