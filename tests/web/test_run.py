"""The page of one run: figures, steps, why it is not moving, what happened; somebody else's is not there."""

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.utils import timezone

from agentruns.models import Attempt, Process, Run, Step
from tests import plans_for_tests as hands
from tests.web.queries import queries

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(ada: User) -> Run:
    Process.born("worker-1", "worker", "host", 1, "build")
    return Run.start("two", "Tides\nand the moon", model="demo", owner=ada)


def page(client: Client, run: Run, query: str = "") -> str:
    answer = client.get(f"/runs/{run.pk}/{query}")
    assert answer.status_code == 200
    return answer.content.decode()


def text(html: str) -> str:
    """As it reads, without markup."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html[html.index('id="live"') :]))


@pytest.mark.parametrize("path", ["", "live", "output?step=first", "cancel"])
def test_somebody_elses_run_is_not_there(client: Client, bob: User, path: str):
    foreign = Run.start("two", "Bob's", model="demo", owner=bob)
    assert client.get(f"/runs/{foreign.pk}/{path}").status_code == 404


def test_orders_to_somebody_elses_run_change_nothing(client: Client, bob: User):
    foreign = Run.start("two", "Bob's", model="demo", owner=bob)
    for verb in ("cancel", "retry"):
        assert client.post(f"/runs/{foreign.pk}/{verb}").status_code == 404
    assert Run.objects.get().status == "queued"


def test_an_id_that_is_none_gets_the_page_for_what_is_not_there(client: Client):
    answer = client.get("/runs/nope/")
    assert answer.status_code == 404
    assert "There is nothing here" in answer.content.decode()


def test_figures_are_the_sums_of_the_ledger(client: Client, run: Run):
    held = hands.claimed(run)
    hands.settled(hands.call_at(held, "first/ask"), cost="0.0125")
    hands.call_at(held, "first/more", reserved="0.30")
    said = text(page(client, run))
    assert "$0.0125 of $1.00 budget" in said
    assert "up to $0.30 in flight" in said
    assert "100 in, 40% cached" in said
    assert "20 out, of which 5 reasoning" in said
    assert "0 of 2" in said


def test_kept_and_lost_are_shown_after_an_interruption(client: Client, run: Run):
    held = hands.claimed(run)
    hands.settled(hands.call_at(held, "first/ask"), cost="0.20")
    held = hands.checkpointed(held, "word", "second")
    Run.objects.filter(pk=run.pk).update(lease_expires_at=timezone.now() - timedelta(seconds=1))
    assert Run.objects.get(pk=run.pk).rescue("lease")
    held = hands.claimed(Run.objects.get(pk=run.pk))
    hands.checkpointed(held, "other", None)
    said = text(page(client, run))
    assert "Not paid twice $0.20 kept over 1 interruption" in said
    assert "Lost to interruptions $0.00 over 1 interruption" in said
    assert "Second was cut off: its worker was lost (worker-1)" in said
    assert "try 2" in said


def test_a_step_shows_output_arithmetic_and_attempts(client: Client, run: Run):
    held = hands.claimed(run)
    price = {"input": "1.00", "cached": "0.10", "output": "4.00"}
    hands.settled(hands.call_at(held, "first/ask"), cost="0.000144", price=price)
    hands.checkpointed(held, "# A title\n\nand **text**", "second")
    html = page(client, run, "?step=first")
    assert "<h3>A title</h3>" in html and "<strong>text</strong>" in html
    said = text(html)
    assert "60 × $1.00/M" in said and "40 × $0.10/M" in said
    assert "This step $0.0001" in said
    assert "1: finished" in said
    assert "# A title" in text(page(client, run, "?step=first&text=1"))


def test_a_failed_run_shows_where_and_why_with_its_traceback_and_a_retry(client: Client, run: Run):
    held = hands.claimed(run)
    hands.failed(held, "ValueError: no such word")
    Attempt.objects.update(traceback="Traceback (most recent call last):\n  \u202eevil\nValueError: no such word")
    html = page(client, run)
    said = text(html)
    assert "It failed in First. ValueError: no such word. Retry goes on" in said
    assert "Traceback" in said
    assert "⟨U+202E⟩evil" in said
    assert f'action="/runs/{run.pk}/retry"' in html


def test_retrying_makes_it_due_again(client: Client, run: Run):
    hands.failed(hands.claimed(run))
    answer = client.post(f"/runs/{run.pk}/retry", {"next": f"/runs/{run.pk}/?step=first"})
    assert (answer.status_code, answer["Location"]) == (303, f"/runs/{run.pk}/?step=first")
    assert Run.objects.get().status == "queued"
    assert "Retried from First by ada" in text(page(client, run))


def test_an_order_that_does_not_fit_is_explained_on_the_page(client: Client, run: Run):
    assert client.post(f"/runs/{run.pk}/retry").status_code == 303
    assert "only a failed run can be retried" in page_above(client, run)
    run.cancel()
    client.post(f"/runs/{run.pk}/cancel")
    assert "there is nothing to cancel" in page_above(client, run)


def page_above(client: Client, run: Run) -> str:
    html = page(client, run)
    return html[: html.index('id="live"')]


def test_a_form_leads_back_to_no_other_site(client: Client, run: Run):
    answer = client.post(f"/runs/{run.pk}/cancel", {"next": "https://elsewhere.example/"})
    assert answer["Location"] == f"/runs/{run.pk}/"


def test_looking_at_the_cancel_page_changes_nothing_and_names_what_a_cancel_does(client: Client, run: Run):
    held = hands.claimed(run)
    hands.settled(hands.call_at(held, "first/ask"), cost="0.20")
    hands.checkpointed(held, "word", "second")
    said = re.sub(r"\s+", " ", client.get(f"/runs/{run.pk}/cancel").content.decode())
    assert "Its 1 finished step and their outputs are kept; $0.20 is spent" in said
    assert Run.objects.get().cancel_requested_at is None


def test_why_a_run_is_not_moving_is_said_for_each_way_of_waiting(client: Client, run: Run):
    assert "It is next." in text(page(client, run))
    Process.ended("worker-1")
    assert "No worker is running. It waits, nothing is lost." in text(page(client, run))
    held = hands.claimed(run)
    waits = {
        "model": "The model is at work on it.",
        "budget": "It needs a higher budget. too dear",
        "operator": "It needs a person. too dear",
        "timer": "It waits for a time to come. too dear",
        "retry": "First is tried again. too dear",
    }
    hands.parked(held, "timer", "first/nap", until=timezone.now() + timedelta(hours=1))
    for kind, words in waits.items():
        Run.objects.update(waiting_for=kind, reason="" if kind == "model" else "too dear")
        assert words in text(page(client, run))


def test_outputs_of_every_shape_have_a_page(client: Client, run: Run):
    held = hands.claimed(run)
    shapes = {
        "none": None,
        "number": 3,
        "list": [1, [2, {"a": "<b>"}]],
        "empty": "",
        "ask": ask_output("hello **you**"),
    }
    rows = [hands.row_of(held, f"first/{name}", value) for name, value in shapes.items()]
    hands.checkpointed(held, {"k": "v" * 50_000}, "second", *rows)
    assert "It gave nothing back." in page(client, run, "?step=first/none")
    assert "&lt;b&gt;" in page(client, run, "?step=first/list")
    assert "<strong>you</strong>" in page(client, run, "?step=first/ask")
    for name in shapes:
        page(client, run, f"?step=first/{name}")
    page(client, run, "?step=first")


def ask_output(words: str) -> dict:
    return {"text": words, "data": None, "tool_calls": [], "model": "demo", "usage": {}, "cost": "0"}


def test_ten_megabytes_of_output_leave_the_page_small_and_the_file_whole(client: Client, run: Run):
    held = hands.claimed(run)
    large = "tides \u20ac " * 700_000
    hands.checkpointed(held, large, "second")
    html = page(client, run, "?step=first")
    assert len(html) < 100_000
    assert "The beginning of" in html
    answer = client.get(f"/runs/{run.pk}/output?step=first")
    assert answer.content.decode() == large
    assert answer["Content-Disposition"].startswith("attachment")
    assert answer["Content-Type"] == "text/plain; charset=utf-8"
    assert answer["Content-Security-Policy"].startswith("sandbox")


def test_a_damaged_output_is_said_and_breaks_no_page(client: Client, run: Run):
    hands.checkpointed(hands.claimed(run), "word", "second")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE agentruns_step SET output = '{broken'")
    assert "What is stored here is damaged" in page(client, run, "?step=first")


def test_the_number_of_queries_does_not_grow_with_the_steps(client: Client, run: Run):
    def count() -> int:
        with queries() as asked:
            page(client, run, "?step=first")
        return len(asked)

    held = hands.claimed(run)
    hands.checkpointed(held, "word", "second", hands.row_of(held, "first/part:1", "x", kind="part"))
    page(client, run)
    few = count()
    Step.objects.bulk_create([hands.row_of(held, f"second/part:{n}", "x", kind="part") for n in range(500)])
    assert count() == few <= 22


def test_five_hundred_parts_are_folded_and_open_on_demand(client: Client, run: Run):
    held = hands.claimed(run)
    Step.objects.bulk_create([hands.row_of(held, f"first/part:{n}", "x", kind="part") for n in range(500)])
    html = page(client, run)
    assert "500 more, 500 of them done" in text(html)
    assert len(html) < 60_000
    opened = page(client, run, "?open=first")
    assert opened.count("data-path=") == 200
    assert "lines are not shown" in text(opened)


def test_demo_is_said_of_a_demo_run_and_of_no_other(client: Client, run: Run):
    assert "DEMO" in page(client, run)
    Run.objects.update(model="gpt-5.4")
    assert "DEMO" not in page(client, run)
