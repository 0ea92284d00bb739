"""The admin: everything to look at, orders by permission with their audit, and no page that the CSP would break."""

import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client
from django.urls import reverse
from playwright.sync_api import sync_playwright

from agentruns.models import Attempt, Body, Call, Day, Event, Price, Process, Provider, Run, Step
from agentruns.models.moment import now
from agentruns.plan import plans
from tests import plans_for_tests as hands

pytestmark = pytest.mark.django_db
RUNS = "/admin/agentruns/run/"


@pytest.fixture(autouse=True)
def plan_two(settings):
    settings.AGENTRUNS_PLANS = ["tests.plans_for_tests"]
    plans.forget()
    yield
    plans.forget()


@pytest.fixture
def a_full_run() -> Run:
    """One with a row of every kind under it."""
    run = hands.claimed(Run.start("two", "A task \u202efor two", params={"k": "\u202ev"}, model="demo"))
    hands.settled(hands.call_at(run, "first/ask"))
    run = hands.checkpointed(run, "<b>word</b> \u202e", "second")
    assert run.rescue("crash", dead_worker="worker-1")
    hands.parked(hands.claimed(run), "retry", "second", outcome="failed", error="ValueError: <i>no</i>")
    return Run.objects.get(pk=run.pk)


def staff_with(django_user_model: Any, *codenames: str) -> Client:
    user = django_user_model.objects.create_user("sam", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client = Client()
    client.force_login(user)
    return client


def order(client: Client, action: str, *runs: Run) -> list[str]:
    """Messages of the page that follows an action on these runs."""
    chosen = {"action": action, "_selected_action": [str(run.pk) for run in runs], "index": "0"}
    answer = client.post(RUNS, chosen, follow=True)
    return [str(message) for message in answer.context["messages"]]


def test_every_page_of_every_table_opens(admin_client, a_full_run):
    Provider.objects.create(base_url="http://provider/v1", stopped_at=now(), reason="no money")
    Process.born("worker-1", "worker", "host", 1, "b")
    Price.objects.create(model="m", input=1, output=2)
    Day.objects.create(date="2026-01-01")
    index = admin_client.get("/admin/").content.decode()
    lists = sorted(set(re.findall(r'href="(/admin/agentruns/[a-z]+/)"', index)))
    assert len(lists) == 15, lists
    for address in lists:
        page = admin_client.get(address)
        assert page.status_code == 200, address
        for row in set(re.findall(rf'href="({address}[^"/]+/change/)', page.content.decode())):
            assert admin_client.get(row).status_code == 200, row


def test_a_run_shows_what_is_under_it_and_offers_nothing_to_change(admin_client, a_full_run):
    page = admin_client.get(f"{RUNS}{a_full_run.pk}/change/").content.decode()
    for part in ("steps", "attempts", "calls", "waits", "events"):
        assert f'id="{part}-group"' in page
    assert "resp_" in page and "was cut off: its worker died" in page and "interrupted" in page
    for writing in ('name="_save"', "deletelink", '<select name="status"', 'name="steps-0-output"'):
        assert writing not in page


def test_what_a_model_or_a_person_wrote_is_shown_as_harmless_text(admin_client, a_full_run):
    run_page = admin_client.get(f"{RUNS}{a_full_run.pk}/change/").content.decode()
    step = a_full_run.steps.get(path="first")
    step_page = admin_client.get(f"/admin/agentruns/step/{step.pk}/change/").content.decode()
    for page in (run_page, step_page):
        assert "\u202e" not in page and "⟨U+202E⟩" in page
    assert "&lt;b&gt;word&lt;/b&gt;" in step_page and "&lt;i&gt;no&lt;/i&gt;" in run_page


@pytest.mark.parametrize("address", ["add/", "{pk}/delete/"])
def test_nobody_adds_or_deletes_a_run_here(admin_client, a_full_run, address):
    assert admin_client.get(RUNS + address.format(pk=a_full_run.pk)).status_code == 403


def test_a_posted_change_of_a_run_is_refused(admin_client, a_full_run):
    answer = admin_client.post(f"{RUNS}{a_full_run.pk}/change/", {"status": "completed", "spent": "0"})
    assert answer.status_code == 403
    assert Run.objects.get(pk=a_full_run.pk).status == a_full_run.status


def test_the_list_finds_runs_by_a_word_of_the_title_and_by_the_start_of_the_id(admin_client):
    bees = Run.start("two", "About bees", model="demo")
    Run.start("two", "About wasps", model="demo")
    for search in ("bees", bees.pk.hex[:8], str(bees.pk)[:12], str(bees.pk)):
        page = admin_client.get(RUNS, {"q": search}).content.decode()
        assert "About bees" in page and "About wasps" not in page, search


def test_the_list_filters_by_status_plan_and_what_is_waited_for(admin_client, a_full_run):
    Run.start("two", "Another task", model="demo")
    for query, found in (
        ({"status__exact": "waiting"}, 1), ({"waiting_for__exact": "retry"}, 1), ({"plan": "two"}, 2),
        ({"plan": "report"}, 0),
    ):  # fmt: skip
        assert admin_client.get(RUNS, query).context["cl"].result_count == found, query


def queries_of(client: Client, address: str) -> list[str]:
    asked: list[str] = []

    def listening(execute: Any, sql: str, *rest: Any) -> Any:
        asked.append(sql)
        return execute(sql, *rest)

    with connection.execute_wrapper(listening):
        assert client.get(address).status_code == 200
    return asked


def test_the_list_loads_no_payload_and_asks_no_more_for_more_runs(admin_client, django_user_model):
    for number in range(2):
        Run.start("two", f"Task {number}", model="demo", owner=django_user_model.objects.create_user(f"u{number}"))
    few = queries_of(admin_client, RUNS)
    for number in range(2, 20):
        Run.start("two", f"Task {number}", model="demo", owner=django_user_model.objects.create_user(f"u{number}"))
    assert len(queries_of(admin_client, RUNS)) == len(few)
    assert not [sql for sql in few if '"task"' in sql or '"params"' in sql]


def test_a_page_of_a_run_loads_no_payload_of_its_rows(admin_client, a_full_run):
    asked = "\n".join(queries_of(admin_client, f"{RUNS}{a_full_run.pk}/change/"))
    for column in ("output", "request", "answer", "partial", "traceback", "payload"):
        assert f'"{column}"' not in asked, column


def test_a_run_with_many_rows_shows_the_newest_two_hundred_and_links_to_all(admin_client):
    run = hands.claimed()
    Step.objects.bulk_create(hands.row_of(run, f"first/part:{number}", "x", "part") for number in range(250))
    page = admin_client.get(f"{RUNS}{run.pk}/change/").content.decode()
    assert "Steps: the newest 200 of 250" in page
    assert [number for number in (49, 50, 249) if re.search(rf"part:{number}\s", page)] == [50, 249]
    link = re.search(r'href="(/admin/agentruns/step/\?[^"]+)"', page)
    assert link and admin_client.get(link[1]).context["cl"].result_count == 250


# --- orders -------------------------------------------------------------------------------------------------------


def test_retry_says_how_many_were_retried_and_why_others_were_not(admin_client, admin_user):
    failed = hands.failed(hands.claimed())
    queued = Run.start("two", "A task", model="demo")
    told = order(admin_client, "retry_runs", failed, queued)
    assert "Retried: 1 run." in told
    assert f"Not retried: 1. Run {queued.short_id} is queued; only a failed run can be retried." in told
    assert Run.objects.get(pk=failed.pk).status == "queued"
    assert failed.events.get(kind="retried").by == admin_user


def test_cancel_tells_apart_what_has_ended_and_what_was_told_to_stop(admin_client):
    running = hands.claimed()
    queued = Run.start("two", "A task", model="demo")
    done = Run.start("two", "A third", model="demo")
    done.cancel()
    told = order(admin_client, "cancel_runs", running, queued, done)
    assert "Told to stop at the next boundary: 1 run." in told and "Cancelled: 1 run." in told
    assert f"Not cancelled: 1. Run {done.short_id} has already been cancelled; there is nothing to cancel." in told


def test_each_order_is_in_the_audit_log_and_a_refused_one_is_not(admin_client, admin_user):
    queued, done = (Run.start("two", f"Task {number}", model="demo") for number in range(2))
    done.cancel()
    order(admin_client, "cancel_runs", queued, done)
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.user, entry.get_change_message()) == (str(queued.pk), admin_user, "Cancelled.")


def test_of_many_refusals_the_first_twenty_are_told_and_the_rest_counted(admin_client):
    runs = [Run.start("two", f"Task {number}", model="demo") for number in range(23)]
    told = order(admin_client, "retry_runs", *runs)
    assert [one for one in told if one.startswith("Not retried: 23.") and one.endswith("And 3 more.")]


def test_orders_are_offered_only_to_those_who_may_give_them(django_user_model):
    run = Run.start("two", "A task", model="demo")
    client = staff_with(django_user_model, "view_run", "retry_run")
    page = client.get(RUNS).content.decode()
    assert "Retry selected runs" in page and "Cancel selected runs" not in page
    order(client, "cancel_runs", run)
    assert Run.objects.get(pk=run.pk).status == "queued"


def test_staff_who_may_only_look_have_no_orders(django_user_model):
    Run.start("two", "A task", model="demo")
    page = staff_with(django_user_model, "view_run").get(RUNS).content.decode()
    assert "A task" in page and "selected runs" not in page


def test_an_order_can_be_given_on_the_page_of_a_run(admin_client):
    run = Run.start("two", "A task", model="demo")
    address = f"{RUNS}{run.pk}/change/"
    page = admin_client.get(address)
    assert "Cancel this run" in page.content.decode()
    admin_client.post(address, {"CHANGE_FORM-action": "cancel_runs", "index": "0", "_selected_action": str(run.pk)})
    assert Run.objects.get(pk=run.pk).status == "cancelled"


# --- what people fill in ------------------------------------------------------------------------------------------


def test_a_price_is_added_and_changed_and_not_below_zero(admin_client):
    address = "/admin/agentruns/price/add/"
    refused = admin_client.post(address, {"model": "m", "input": "-1", "output": "2"})
    assert "Give an amount of 0 or more." in refused.content.decode()
    admin_client.post(address, {"model": "m", "input": "1", "output": "2"})
    price = Price.objects.get(model="m")
    change = f"/admin/agentruns/price/{price.pk}/change/"
    admin_client.post(change, {"model": "m", "input": "3", "output": "2", "cached": "0.5"})
    price.refresh_from_db()
    assert (price.input, str(price.cached)) == (3, "0.500000")


def test_the_budget_of_a_day_is_changed_and_its_date_is_not(admin_client):
    day = Day.objects.create(date="2026-01-01")
    admin_client.post(f"/admin/agentruns/day/{day.pk}/change/", {"budget": "12.5", "date": "2026-02-02"})
    day.refresh_from_db()
    assert (day.budget, str(day.date)) == (12.5, "2026-01-01")


def test_a_large_output_is_cut_on_its_page(admin_client):
    run = hands.claimed()
    row = hands.row_of(run, "first", None)
    row.output, row.body = Body.keep("y" * 100_000)
    row.save()
    page = admin_client.get(f"/admin/agentruns/step/{row.pk}/change/").content.decode()
    assert "and 67,232 characters more" in page and "y" * 40_000 not in page


# --- in a browser -------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_no_admin_page_violates_the_content_security_policy(
    live_server, settings, client, django_user_model, chromium, a_full_run
):
    client.force_login(django_user_model.objects.create_superuser("root"))
    Price.objects.create(model="m", input=1, output=2)
    price = Price.objects.get()
    pages = [
        reverse("admin:index"), RUNS, f"{RUNS}?status__exact=waiting", f"{RUNS}{a_full_run.pk}/change/",
        "/admin/agentruns/call/", f"/admin/agentruns/call/{Call.objects.get().pk}/change/", "/admin/agentruns/day/add/",
        f"/admin/agentruns/price/{price.pk}/change/", f"/admin/agentruns/attempt/{Attempt.objects.first().pk}/change/",
        f"/admin/agentruns/event/{Event.objects.first().pk}/change/", f"{RUNS}{a_full_run.pk}/history/",
    ]  # fmt: skip
    complaints: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        context = browser.new_context()
        session = client.cookies[settings.SESSION_COOKIE_NAME].value
        context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": live_server.url}])
        page = context.new_page()
        page.on("console", lambda message: complaints.append(f"{page.url}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"{page.url}: {error}"))
        for address in pages:
            answer = page.goto(live_server.url + address)
            assert answer and answer.ok and "script-src" in answer.headers["content-security-policy"], address
        page.goto(live_server.url + RUNS)
        page.locator("#action-toggle").check()  # the admin's own script works under the policy
        page.wait_for_selector("tr.selected, .action-counter:has-text('1 of 1')")
        browser.close()
    assert complaints == []
