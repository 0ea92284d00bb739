"""Who is told of what: a row in the transaction that makes it so, mail over SMTP, webhooks over HTTP, once each."""

import email
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from django.contrib.auth import get_user_model
from django.db import OperationalError

from agentruns import PermanentError, notifying, step
from agentruns.errors import Refusal
from agentruns.models import Hook, Outbox, Run
from agentruns.models.moment import in_seconds
from tests.engine.hands import at_once
from tests.system import free_port
from tests.webhooks import signature

EVERYTHING = ["needs_you", "failed", "completed", "budget"]


class Letters:
    """An SMTP server's mails, as they arrived."""

    def __init__(self) -> None:
        self.mails: list[Any] = []
        self.answer = "250 Kept"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        if self.answer.startswith("250"):
            self.mails.append(email.message_from_bytes(envelope.content))
        return self.answer


@pytest.fixture
def letters(settings):
    letters = Letters()
    port = free_port()
    controller = Controller(letters, hostname="127.0.0.1", port=port)
    controller.start()
    settings.EMAIL_URL = f"smtp://127.0.0.1:{port}"
    settings.MAILERS = {"default": {"OPTIONS": {"host": "127.0.0.1", "port": port, "timeout": 5}}}
    yield letters
    controller.stop()


class Address:
    """An HTTP server that keeps what was posted; it answers with `statuses` in turn, then with 204."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.statuses: list[int] = []
        address = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                address.requests.append(({name.lower(): value for name, value in self.headers.items()}, body))
                status = address.statuses.pop(0) if address.statuses else 204
                self.send_response(status)
                self.send_header("location", "/elsewhere")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *words: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/hook"

    def events(self) -> list[Any]:
        return [json.loads(body) for _, body in self.requests]


@pytest.fixture
def address():
    address = Address()
    yield address
    address.server.shutdown()
    address.server.server_close()


@pytest.fixture
def hook(address, transactional_db):
    return Hook.objects.create(url=address.url, kinds=EVERYTHING)


@pytest.fixture
def ada(transactional_db):
    return get_user_model().objects.create_user("ada", email="ada@example.com", is_superuser=True)


@step
def quick(ctx):
    return "done"


@step
def hopeless(ctx):
    raise PermanentError("no such customer")


@step
def careful(ctx):
    return ctx.approve("go", {"amount": 100})


def told() -> list[tuple[str, bool]]:
    return [(row.kind, row.sent_at is not None) for row in Outbox.objects.order_by("created_at")]


def make_due() -> None:
    Outbox.objects.filter(sent_at=None).update(send_at=in_seconds(-1))


def test_an_owner_who_asked_for_it_is_mailed_when_the_run_is_completed(declare, start, shop, letters, ada):
    declare(quick)
    run = shop.until(start(owner=ada, notify=["mail"]))
    notifying.send_due()
    (mail,) = letters.mails
    assert mail["to"] == "ada@example.com"
    assert mail["subject"] == f"agentruns: trial is completed ({run.short_id})"
    assert f"http://127.0.0.1:8000/runs/{run.pk}/" in mail.get_payload()


def test_nobody_is_mailed_who_did_not_ask(declare, start, shop, letters, ada):
    declare(quick)
    shop.until(start(owner=ada))
    notifying.send_due()
    assert letters.mails == []


def test_a_failure_says_why_and_a_retry_that_fails_is_another_event(declare, start, shop, letters, ada):
    declare(hopeless)
    run = shop.until(start(owner=ada, notify=["mail"]))
    run.retry(ada)
    shop.until(run)
    notifying.send_due()
    assert ["no such customer" in mail.get_payload() for mail in letters.mails] == [True, True]


def test_a_wait_for_a_person_is_told_once_however_often_the_step_is_entered(declare, start, shop, address, hook):
    declare(careful)
    run = shop.until(start(), "waiting", waiting_for="approval")
    for _ in range(2):
        Run.objects.filter(pk=run.pk).update(status="queued", waiting_for="")
        shop.until(run, "waiting", waiting_for="approval")
    notifying.send_due()
    (event,) = address.events()
    assert (event["type"], event["data"]["path"], event["data"]["waiting_for"]) == (
        "run.needs_you", "careful/go", "approval",
    )  # fmt: skip


def test_eighty_percent_of_a_budget_is_told_once_a_budget(declare, start, shop, address, hook, provider):
    @step
    def asks(ctx):
        ctx.usage("outside", "demo", input_tokens=10, output_tokens=10)
        ctx.usage("again", "demo", input_tokens=10, output_tokens=10)
        return "spent"

    declare(asks)
    shop.until(start(budget="0.0001"))
    notifying.send_due()
    assert [event["type"] for event in address.events()] == ["run.budget", "run.completed"]


def test_a_webhook_is_signed_with_the_hooks_own_secret_and_holds_nothing_the_run_has_made(
    declare, start, shop, address, hook
):
    declare(quick)
    run = shop.until(start())
    notifying.send_due()
    ((headers, body),) = address.requests
    right = signature(body, headers["webhook-id"], headers["webhook-timestamp"], hook.secret)
    assert headers["webhook-signature"] == right
    data = json.loads(body)["data"]
    assert (data["id"], data["status"], data["budget_usd"]) == (str(run.pk), "completed", "5.00")
    assert "done" not in str(data)


def test_a_hook_of_one_owner_is_not_told_of_anothers_runs(declare, start, shop, address, hook, ada):
    Hook.objects.filter(pk=hook.pk).update(owner=ada)
    declare(quick)
    shop.until(start())
    assert told() == []


def test_what_was_not_taken_is_sent_again_under_the_same_id(declare, start, shop, address, hook):
    declare(quick)
    address.statuses = [503, 302]
    shop.until(start())
    for expected in (False, False, True):
        make_due()
        notifying.send_due()
        assert told() == [("completed", expected)]
    assert len({headers["webhook-id"] for headers, _ in address.requests}) == 1
    assert len(address.requests) == 3


def test_a_mail_server_that_is_away_keeps_the_mail_for_later(declare, start, shop, letters, ada):
    declare(quick)
    letters.answer = "451 Not now"
    shop.until(start(owner=ada, notify=["mail"]))
    make_due()
    notifying.send_due()
    row = Outbox.objects.get()
    assert (row.sent_at, "451" in row.error) == (None, True)
    letters.answer = "250 Kept"
    make_due()
    notifying.send_due()
    assert len(letters.mails) == 1


def test_a_hook_that_is_gone_is_given_up_and_the_run_says_so(declare, start, shop, address, hook):
    declare(quick)
    address.statuses = [410]
    run = shop.until(start())
    make_due()
    notifying.send_due()
    assert Outbox.objects.get().send_at is None
    assert run.events.filter(kind="not_told").count() == 1


def test_many_clocks_send_it_once(declare, start, shop, address, hook):
    declare(quick)
    shop.until(start(), "completed")
    Outbox.objects.update(sent_at=None, send_at=in_seconds(-1), tries=0)
    address.requests.clear()
    at_once(6, lambda number: notifying.send_due())
    assert len(address.requests) == 1


def test_a_transaction_that_is_undone_tells_nobody(declare, start, shop, address, hook, line):
    declare(quick)
    run = start()
    held = shop.claim()
    line.refused.add(line.commits + 1)
    with pytest.raises(OperationalError):
        held.complete("build")
    assert (told(), Run.objects.get(pk=run.pk).status) == ([], "running")


@pytest.mark.parametrize(
    ("notify", "reason"),
    [(["pigeon"], "no notification by 'pigeon'"), (["mail"], "no mail address")],
)
def test_a_way_that_cannot_work_is_refused_before_the_run_starts(notify, reason, declare, start, letters):
    declare(quick)
    with pytest.raises(Refusal, match=reason):
        start(notify=notify)
    assert not Run.objects.exists()


def test_mail_where_none_can_be_sent_is_refused(declare, start, ada, settings):
    settings.EMAIL_URL = ""
    declare(quick)
    with pytest.raises(Refusal, match="EMAIL_URL"):
        start(notify=["mail"], owner=ada)
