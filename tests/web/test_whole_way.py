"""A person in the browser, on real workers: sign in, submit, watch, close the tab, come back, see it completed."""

import os
import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.system import System
from tests.web.pages import Site

pytestmark = pytest.mark.once


@pytest.fixture
def enter(system: System, browser: Browser) -> Iterator[Site]:
    system.start(workers=2, web=True)
    site = Site(browser, system.url)
    site.sign_in(system.name, system.password)
    yield site
    site.close()


def test_a_run_goes_on_while_its_tab_is_closed_and_shows_its_cost_at_the_end(
    system: System, browser: Browser, enter: Site
):
    page = enter.runs().start("How a lighthouse is built", plan="report")
    page.until_steps(lambda steps: steps.get("outline") == "finished", "the outline is finished, without a reload")
    run_id = page.id
    enter.page.close()
    system.until_ended(run_id)
    again = Site(browser, system.url)
    again.sign_in(system.name, system.password)
    seen = again.run(run_id).until_status("Completed")
    assert seen.cost.startswith("$0.0")
    assert list(seen.steps.values()).count("finished") == len(seen.steps)
    assert again.complaints == enter.complaints == []
    again.close()


def test_a_killed_work_horse_is_seen_and_costs_nothing_twice(system: System, enter: Site):
    page = enter.runs().start("Slow going [demo: slow 2]", plan="report")
    page.until_steps(lambda steps: steps.get("outline") == "finished", "the outline is finished")
    horses = [horse for name in ("worker-1", "worker-2") for horse in system.horses(name)]
    for horse in horses:
        os.kill(horse, signal.SIGKILL)
    page.until_status("Completed", seconds=90)
    calls = [call for call in system.ledger()["calls"] if call["metadata"]["run"] == page.id]
    assert len({call["metadata"]["path"] for call in calls}) == len(calls)
