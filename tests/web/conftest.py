"""People, a signed-in client, and a browser on a server that has the test's own database."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.test import Client
from playwright.sync_api import Browser, sync_playwright

from agentruns.plan import plans
from agentruns.web import guard, notices
from tests.web.pages import Site

PASSWORD = "a-password-for-pages"
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


@pytest.fixture(autouse=True)
def plan_two(settings: Any) -> Iterator[None]:
    """Beside the plans that are shipped, "two": its steps are short to play through by hand."""
    settings.AGENTRUNS_PLANS = ["tests.plans_for_tests"]
    plans.forget()
    yield
    plans.forget()


@pytest.fixture(autouse=True)
def fresh_looks() -> None:
    """What a web process remembers for seconds must not last from one test to the next."""
    notices.forget()
    guard.forget()


@cache
def hashed() -> str:
    """PASSWORD as it is stored: scrypt takes a third of a second, and nearly every test has people in it."""
    return make_password(PASSWORD)


@pytest.fixture
def ada(db: None) -> User:
    return User.objects.create(username="ada", password=hashed())


@pytest.fixture
def bob(db: None) -> User:
    return User.objects.create(username="bob", password=hashed())


@pytest.fixture
def client(ada: User) -> Client:
    """Ada's."""
    signed_in = Client()
    signed_in.force_login(ada)
    return signed_in


# --- the browser ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    """Until the module's end only: while Playwright runs, this thread has an event loop.

    Django then refuses queries, although none of ours is async, unless it is told; and asyncio.run() fails.
    """
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        yield browser
        browser.close()


def enter(site: Site, person: User) -> None:
    """Signs `person` in without the form, which takes a second."""
    client = Client()
    client.force_login(person)
    site.context.add_cookies([{"name": "sessionid", "value": client.cookies["sessionid"].value, "url": site.url}])


@pytest.fixture
def site(browser: Browser, transactional_db: None, live_server: Any, ada: User) -> Iterator[Site]:
    """Ada, signed in, in a window of her own. At its end the console must be clean."""
    site = Site(browser, live_server.url)
    enter(site, ada)
    yield site
    site.close()
    assert site.complaints == []
