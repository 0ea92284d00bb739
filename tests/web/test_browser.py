"""The pages in Chromium: live without losing what a person has open, typed or focused; a clean console throughout."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Browser, expect

from agentruns.models import Run
from agentruns.web import run as run_page
from tests import plans_for_tests as hands
from tests.web.conftest import PASSWORD, enter
from tests.web.pages import RunPage, Site


@pytest.fixture
def run(ada: User) -> Run:
    return Run.start("two", "A task for two\nin two lines", model="demo", owner=ada)


def test_steps_appear_as_a_worker_finishes_them_and_polls_stop_at_the_end(site: Site, run: Run):
    shown = site.run(run.pk)
    assert shown.steps == {"first": "to_come", "second": "to_come"}
    held = hands.claimed(run)
    hands.settled(hands.call_at(held, "first/ask"))
    held = hands.checkpointed(held, "the first word", "second")
    site.until_changed()
    assert shown.steps == {"first": "finished", "second": "running"}
    assert shown.cost == "$0.0025"
    hands.checkpointed(held, "**the second** word", None)
    site.until_changed()
    shown.until_status("Completed")
    assert "the second word" in shown.output
    assert not shown.is_polling
    site.polls.clear()
    site.page.evaluate("dispatchEvent(new Event('focus'))")
    site.page.wait_for_timeout(2500)
    assert site.polls == []


@pytest.mark.once
def test_an_unchanged_poll_is_a_304_that_the_page_itself_sees(site: Site, run: Run):
    site.run(run.pk)
    site.poll()
    assert site.poll().status == 304
    site.runs()
    site.poll()
    assert site.poll().status == 304


@pytest.mark.once
def test_open_details_focus_and_scroll_survive_twenty_changes(site: Site, run: Run):
    held = hands.claimed(run)
    held = hands.checkpointed(held, "\n\n".join(f"paragraph {n}" for n in range(80)), "second")
    site.run(run.pk, "?step=first")
    site.page.locator("#task summary").click()
    link = site.page.locator('tr[data-path="second"] a')
    link.focus()
    site.page.locator("#prose").evaluate("box => { box.scrollTop = 123 }")
    for _ in range(20):
        Run.objects.get(pk=run.pk).change(("running",), losses=0)
        site.until_changed()
    assert site.page.locator("#task").get_attribute("open") is not None
    assert site.page.locator("#prose").evaluate("box => box.scrollTop") == 123
    expect(link).to_be_focused()


@pytest.mark.once
def test_text_being_typed_survives_the_polls_of_the_list(site: Site, run: Run):
    runs = site.runs()
    runs.task.press_sequentially("half a tho")
    hands.claimed(run)
    site.until_changed()
    expect(runs.task).to_have_value("half a tho")
    expect(runs.task).to_be_focused()
    assert "Running" in site.page.locator("table.runs").inner_text()


@pytest.mark.once
def test_new_runs_are_announced_and_do_not_push_the_list_down(site: Site, run: Run, ada: User):
    runs = site.runs()
    assert runs.titles == ["A task for two"]
    for number in range(3):
        Run.start("two", f"Later {number}", model="demo", owner=ada)
    site.until_changed()
    assert runs.titles == ["A task for two"]
    assert "3 new runs" in runs.newer.inner_text()
    runs.newer.click()
    expect(site.page.locator("table.runs .ttl")).to_have_count(4)


@pytest.mark.once
def test_a_hidden_page_asks_nothing_and_asks_at_once_when_it_is_looked_at(site: Site, run: Run):
    site.run(run.pk)
    site.page.evaluate(
        "Object.defineProperty(document, 'hidden', {get: () => window.away ?? true, configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    site.polls.clear()
    site.page.wait_for_timeout(6000)
    assert site.polls == []
    with site.page.expect_response(lambda answer: "/live" in answer.url, timeout=2000):
        site.page.evaluate("window.away = false; document.dispatchEvent(new Event('visibilitychange'))")


@pytest.mark.once
def test_a_plan_shows_its_steps_before_the_start(site: Site):
    runs = site.runs().choose("two")
    assert runs.steps_of("two") == ["First", "Second"]
    assert runs.steps_of("report") == []
    assert runs.choose("report").steps_of("report") == ["Outline", "Research", "Draft", "Review"]
    assert runs.budget.get_attribute("placeholder") == "5.00"


@pytest.mark.once
def test_what_was_typed_survives_an_error_and_a_reload(site: Site):
    runs = site.runs().choose("two").fill("Explain tides\nat length", "abc")
    runs.press_start()
    expect(site.page.locator("#form-errors")).to_be_visible()
    assert "is not an amount" in runs.error("budget")
    expect(runs.task).to_have_value("Explain tides\nat length")
    expect(runs.budget).to_have_value("abc")
    runs.open()
    expect(runs.task).to_have_value("Explain tides\nat length")
    expect(site.page.locator("#plan-two")).to_be_checked()
    site.complaints.clear()  # the browser reports the 422 as a failed resource


@pytest.mark.once
def test_pressing_start_twice_is_one_run_and_the_draft_is_dropped_then(site: Site, ada: User):
    runs = site.runs().choose("two").fill("Explain tides")
    site.page.evaluate("document.querySelector('#new-run-form').submit(); document.querySelector('#start').click()")
    site.page.wait_for_url("**/runs/*/**")
    assert Run.objects.count() == 1
    expect(runs.open().task).to_have_value("")


@pytest.mark.once
def test_a_draft_whose_run_was_never_seen_finds_that_run_again(site: Site, ada: User):
    runs = site.runs().choose("two").fill("Explain tides")
    runs.press_start()
    site.page.wait_for_url("**/runs/*/**")
    first = RunPage(site).id
    # As if the answer had been lost: the draft is still there, with the key it was sent under.
    key = Run.objects.get().submission_key
    site.page.evaluate(
        "key => localStorage.setItem('agentruns:draft', JSON.stringify({plan: 'two', task: 'Explain tides', key}))", key
    )
    runs.open().press_start()
    site.page.wait_for_url("**/runs/*/**")
    assert RunPage(site).id == first
    assert Run.objects.count() == 1


@pytest.mark.once
def test_cancelling_names_the_consequence_and_escape_keeps_the_run(site: Site, run: Run):
    shown = site.run(run.pk)
    dialog = shown.press_cancel()
    assert "No step of it is finished yet" in dialog.inner_text()
    expect(dialog.get_by_text("Keep it running")).to_be_focused()
    site.page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    shown.cancel()
    assert shown.status == "Cancelled"
    assert Run.objects.get().status == "cancelled"


@pytest.mark.once
def test_a_step_is_opened_without_leaving_and_the_address_names_it(site: Site, run: Run):
    held = hands.claimed(run)
    hands.checkpointed(held, {"deep": {"er": [1, 2, 3]}}, "second")
    shown = site.run(run.pk)
    shown.open_step("first")
    assert "step=first" in site.page.url
    assert "deep" in shown.output
    site.page.go_back()
    expect(site.page.locator("#step")).to_contain_text("second")


@pytest.mark.once
def test_the_search_narrows_the_list_as_it_is_typed(site: Site, run: Run, ada: User):
    Run.start("two", "Something else", model="demo", owner=ada)
    runs = site.runs()
    site.page.locator("#q").press_sequentially("task for")
    expect(site.page.locator("table.runs .ttl")).to_have_count(1)
    assert runs.titles == ["A task for two"]
    assert "q=task" in site.page.url
    expect(site.page.locator("#q")).to_be_focused()


@pytest.mark.once
def test_the_theme_is_switched_at_once_and_rendered_by_the_server_afterwards(site: Site):
    site.runs()
    for theme in ("light", "dark"):
        site.page.locator("form.theme button").click()
        assert site.page.locator("html").get_attribute("data-theme") == theme
    html = site.context.request.get(site.url + "/").text()
    assert '<html lang="en" data-theme="dark"' in html


@pytest.mark.once
def test_a_server_that_breaks_does_not_take_the_page_away(site: Site, run: Run, monkeypatch: pytest.MonkeyPatch):
    def broken(*args: object) -> None:
        raise RuntimeError("a fault of ours")

    shown = site.run(run.pk)
    with monkeypatch.context() as patch:
        patch.setattr(run_page, "sheet", broken)
        hands.claimed(run)
        while site.poll().status != 500:
            pass
        expect(site.page.locator("#offline")).to_contain_text("Reconnecting, last update")
        assert shown.steps == {"first": "to_come", "second": "to_come"}
    shown.until_steps(lambda steps: steps["first"] == "running", "the first step runs")
    expect(site.page.locator("#offline")).to_be_hidden()
    site.complaints.clear()  # the browser reports the 500 as a failed resource


@pytest.mark.once
def test_signing_out_in_another_tab_ends_the_polls_at_the_login(site: Site, run: Run, ada: User):
    site.run(run.pk)
    site.context.clear_cookies()
    site.page.evaluate("dispatchEvent(new Event('focus'))")
    site.page.wait_for_url(f"**/login/?next=/runs/{run.pk}/")
    site.complaints.clear()  # the browser reports the 401 as a failed resource


@pytest.mark.once
def test_everything_works_without_javascript(browser: Browser, transactional_db: None, live_server: Any, ada: User):
    site = Site(browser, live_server.url, js=False)
    site.sign_in("ada", PASSWORD)
    shown = site.runs().start("Explain tides", plan="two")
    assert shown.steps == {"first": "to_come", "second": "to_come"}
    site.page.locator("#cancel").click()
    site.page.get_by_role("button", name="Cancel the run").click()
    assert shown.status == "Cancelled"
    site.page.locator("#again").click()
    expect(site.runs().task).to_have_value("")
    site.close()


@pytest.fixture
def phone(browser: Browser, transactional_db: None, live_server: Any, ada: User) -> Iterator[Site]:
    site = Site(browser, live_server.url, width=390)
    enter(site, ada)
    yield site
    site.close()


@pytest.mark.once
def test_no_page_scrolls_sideways_on_a_phone(phone: Site, run: Run):
    held = hands.claimed(run)
    hands.checkpointed(held, "x" * 4000 + "\n\n```\n" + "y" * 4000 + "\n```", "second")
    for path in ("/login/", "/", f"/runs/{run.pk}/?step=first", f"/runs/{run.pk}/cancel", "/workers/", "/plans/"):
        phone.open(path)
        assert phone.page.evaluate("document.documentElement.scrollWidth") <= 390, path
