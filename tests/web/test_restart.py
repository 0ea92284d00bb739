"""The page over a restart of the web server: it keeps what it shows, says so, and catches up by itself."""

import signal

import pytest
from playwright.sync_api import Browser, expect

from tests.system import System
from tests.web.pages import Site


@pytest.mark.once
def test_a_page_survives_a_restart_of_the_web_and_catches_up(system: System, browser: Browser):
    system.start(workers=0, clock=False, redis=False, web=True)
    run_id = system.submit("report", "How tides work", "--by", system.name)
    site = Site(browser, system.url)
    site.sign_in(system.name, system.password)
    shown = site.run(run_id)
    site.poll()
    system.kill("web", signal.SIGTERM)
    site.page.evaluate("dispatchEvent(new Event('focus'))")
    bar = site.page.locator("#offline")
    expect(bar).to_contain_text("Reconnecting, last update", timeout=20_000)
    assert shown.steps["outline"] == "to_come"
    system.manage("cancel", run_id)
    system.start_web()
    shown.until_status("Cancelled")
    expect(bar).to_be_hidden()
    assert site.page.locator("#live").count() == 1
    site.close()
