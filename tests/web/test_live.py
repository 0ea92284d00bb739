"""The poll protocol: 304 and one query while nothing changed, the new state when it has, a clear end."""

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from agentruns.models import Process, Run
from agentruns.web import notices
from tests import plans_for_tests as hands
from tests.web.queries import queries

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}
# Who asks: the session, and the person.
SIGNED_IN = 2


@pytest.fixture
def run(ada: User) -> Run:
    return Run.start("two", "Tides", model="demo", owner=ada)


def polled(client: Client, url: str, tag: str = ""):
    return client.get(url, headers=HTMX | ({"HX-PTag": tag} if tag else {}))


def live(run: Run) -> str:
    return f"/runs/{run.pk}/live"


@pytest.mark.parametrize("region", ["run", "list", "list under a search", "later page"])
def test_an_unchanged_poll_is_a_304_with_one_query(client: Client, run: Run, region: str):
    url = {
        "run": live(run),
        "list": f"/live?top={run.pk.hex}",
        "list under a search": f"/live?q=tid&top={run.pk.hex}",
        "later page": f"/live?after={run.pk.hex}",
    }[region]
    tag = polled(client, url)["HX-PTag"]
    with queries() as asked:
        answer = polled(client, url, tag)
    assert (answer.status_code, answer.content) == (304, b"")
    assert len(asked) == SIGNED_IN + 1


def test_the_page_carries_the_tag_that_its_first_poll_is_answered_by(client: Client, run: Run):
    for page, url in ((f"/runs/{run.pk}/", live(run)), ("/", f"/live?top={run.pk.hex}")):
        tag = client.get(page).context["tag"]
        assert polled(client, url, tag).status_code == 304


def test_whatever_moves_a_run_changes_its_tag(client: Client, run: Run):
    seen = {polled(client, live(run))["HX-PTag"]}

    def changed() -> bool:
        before = len(seen)
        seen.add(polled(client, live(run))["HX-PTag"])
        return len(seen) > before

    held = hands.claimed(run)
    assert changed()
    call = hands.call_at(held, "first/ask")
    assert changed()
    hands.settled(call)
    assert changed()
    held = hands.checkpointed(held, "word", "second")
    assert changed()
    hands.parked(held, "timer", "second/nap", until=timezone.now() + timezone.timedelta(hours=1))
    assert changed()
    Run.objects.get(pk=run.pk).cancel()
    assert changed()
    assert not changed()


def test_a_worker_that_falls_silent_changes_the_tag_although_no_row_does(client: Client, run: Run):
    held = hands.claimed(run)
    before = polled(client, live(run))["HX-PTag"]
    past = timezone.now() - timezone.timedelta(seconds=9)
    Run.objects.filter(pk=held.pk).update(lease_expires_at=past)
    answer = polled(client, live(run), before)
    assert "Its worker has fallen silent." in answer.content.decode()


def test_a_banner_that_comes_up_is_in_the_next_poll(client: Client, run: Run):
    Process.born("worker-1", "worker", "host", 1, "build")
    notices.forget()
    before = polled(client, live(run))
    assert "No worker is running." not in before.content.decode()
    Process.ended("worker-1")
    Run.objects.update(enqueued_at=timezone.now() - timezone.timedelta(seconds=30))
    notices.forget()
    answer = polled(client, live(run), before["HX-PTag"])
    assert answer.status_code == 200
    assert 'id="notices" hx-swap-oob="outerMorph"' in answer.content.decode()
    assert "No worker is running." in answer.content.decode()


def test_a_run_that_has_ended_is_drawn_without_anything_that_polls(client: Client, run: Run):
    assert "data-live=" in polled(client, live(run)).content.decode()
    run.cancel()
    html = polled(client, live(run)).content.decode()
    assert 'id="live"' in html
    assert "data-live=" not in html and "hx-trigger" not in html


def test_a_run_that_ended_with_a_call_in_flight_is_polled_until_that_is_settled(client: Client, run: Run):
    held = hands.claimed(run)
    call = hands.call_at(held, "first/ask")
    hands.parked(held, "model", "first/ask")
    Run.objects.get(pk=run.pk).cancel()
    assert "data-live=" in polled(client, live(run)).content.decode()
    hands.settled(call)
    assert "data-live=" not in polled(client, live(run)).content.decode()


def test_a_run_that_is_not_there_ends_the_poll_with_a_small_panel(client: Client, bob: User):
    foreign = Run.start("two", "Bob's", model="demo", owner=bob)
    answer = polled(client, live(foreign))
    assert answer.status_code == 404
    assert "data-live=" not in answer.content.decode()
    assert "Bob" not in answer.content.decode()


def test_a_poll_of_someone_signed_out_is_sent_to_the_login_and_back(run: Run):
    answer = Client().get(live(run), headers=HTMX | {"HX-Current-URL": f"http://testserver/runs/{run.pk}/?step=first"})
    assert answer.status_code == 401
    assert answer["HX-Redirect"] == f"/login/?next=/runs/{run.pk}/%3Fstep%3Dfirst"
    assert Client().get(live(run)).status_code == 302


def test_new_runs_are_counted_and_not_listed_until_they_are_asked_for(client: Client, run: Run, ada: User):
    for number in range(2):
        Run.start("two", f"Later {number}", model="demo", owner=ada)
    html = polled(client, f"/live?top={run.pk.hex}").content.decode()
    assert "2 new runs" in html
    assert "Later" not in html


def test_a_poll_tells_the_build_so_that_a_page_of_an_older_one_can_say_so(client: Client, run: Run):
    page = client.get("/").content.decode()
    assert f'data-build="{polled(client, live(run))["X-Build"]}"' in page
