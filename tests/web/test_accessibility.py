"""axe finds nothing on any page, in light and dark, at a desk and on a phone; and the strict policy is never broken."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.contrib.auth.models import User
from playwright.sync_api import Browser

from agentruns.models import Attempt, Run
from tests import plans_for_tests as hands
from tests.web.conftest import enter
from tests.web.pages import Site

pytestmark = pytest.mark.once
MARKDOWN = (
    "# A title\n\nwith [a link](https://example.com) and `code`\n\n|a|b|\n|-|-|\n|1|2|\n\n> quoted\n\n```\ncode\n```"
)


@pytest.fixture(params=["light", "dark"])
def theme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[1440, 390], ids=["desk", "phone"])
def look(
    request: pytest.FixtureRequest, theme: str, browser: Browser, transactional_db: None, live_server: Any, ada: User
) -> Iterator[Site]:
    site = Site(browser, live_server.url, width=request.param, theme=theme)
    yield site
    site.close()


def clean(site: Site) -> None:
    """Nothing for axe, nothing in the console."""
    found = Axe().run(site.page).response["violations"]
    assert [(one["id"], [node["target"] for node in one["nodes"]]) for one in found] == [], site.page.url
    assert site.complaints == [], site.page.url


def running(ada: User) -> Run:
    held = hands.claimed(Run.start("two", "Tides", model="demo", owner=ada))
    hands.settled(hands.call_at(held, "first/ask"))
    held = hands.checkpointed(held, MARKDOWN, "second")
    hands.call_at(held, "second/ask")
    return held


def completed(ada: User) -> Run:
    return hands.checkpointed(running(ada), {"a": [1, 2, {"b": None}]}, None)


def failed(ada: User) -> Run:
    run = hands.failed(running(ada))
    Attempt.objects.filter(outcome="failed").update(
        traceback="Traceback (most recent call last):\n  line\nValueError: no"
    )
    return run


def test_the_login_and_an_empty_list_are_clean(look: Site, ada: User):
    look.open("/login/")
    clean(look)
    look.page.get_by_label("Name").fill("ada")
    look.page.get_by_label("Password").fill("wrong")
    look.page.locator("form.login button").click()
    clean(look)
    enter(look, ada)
    look.runs()
    clean(look)


@pytest.mark.parametrize("state", [running, completed, failed])
def test_a_run_is_clean_in_each_state(look: Site, ada: User, state: Callable[[User], Run]):
    run = state(ada)
    enter(look, ada)
    shown = look.run(run.pk)
    for summary in look.page.locator("summary").all():
        if summary.is_visible():
            summary.click()
    clean(look)
    shown.open_step("first")
    clean(look)
    if state is running:
        shown.press_cancel()
        clean(look)


def test_the_list_the_form_with_errors_and_the_small_pages_are_clean(look: Site, ada: User):
    failed(ada), completed(ada), Run.start("two", "Queued", model="demo", owner=ada)
    enter(look, ada)
    look.runs()
    clean(look)
    look.runs().choose("two").fill("", "abc").press_start()
    look.page.locator("#form-errors").wait_for()
    look.complaints.clear()  # the browser reports the 422 as a failed resource
    clean(look)
    for path in ("/?q=nothing-like-it", "/workers/", "/plans/"):
        look.open(path)
        clean(look)
    look.open("/nope")
    look.complaints.clear()  # and the 404
    clean(look)


def test_the_admin_breaks_no_policy_either(browser: Browser, transactional_db: None, live_server: Any, ada: User):
    ada.is_staff = ada.is_superuser = True
    ada.save()
    run = completed(ada)
    site = Site(browser, live_server.url)
    enter(site, ada)
    site.open("/admin/")
    paths = {link.get_attribute("href") for link in site.page.locator("#content-main a").all()}
    lists = sorted(path for path in paths if path and re.fullmatch(r"/admin/\w+/\w+/", path))
    assert lists
    for path in [*lists, f"/admin/agentruns/run/{run.pk}/change/", "/admin/password_change/"]:
        site.open(path)
        assert site.complaints == [], path
    site.close()
