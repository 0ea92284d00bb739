"""A notice to an internal API behind @idempotent, over HTTP: sent once, whichever of the two sides dies."""

import pytest

from agentruns.models import Run
from tests.effects import plans
from tests.effects.conftest import Doomed, Office

pytestmark = [pytest.mark.django_db, pytest.mark.once]


@pytest.mark.parametrize("point", ["intent-committed", "effect-done"])
def test_a_killed_worker_repeats_and_the_notice_is_one(office: Office, doomed: Doomed, point):
    task = f"Tea is served, whatever dies at {point}"
    run = doomed.complete(point, "notify", task, api=office.url)
    assert (office.begun(run), office.notices(task)) == (1, 1)


@pytest.fixture
def notify(office: Office, declare, start, shop, monkeypatch):
    """A run of the plan in this process, completed."""
    monkeypatch.setattr("agentruns.outcome.FIRST_PAUSE_SECONDS", 0.3)

    def notify(task: str) -> Run:
        declare(plans.notify)
        run = shop.until(start(task, params={"api": office.url}))
        assert run.status == "completed", run.reason
        return run

    return notify


def test_an_answer_that_was_lost_is_given_again_and_the_view_does_not_run_again(office: Office, notify):
    office.kill_once("before-the-answer")
    run = notify("Tea was served")
    assert office.was_killed("before-the-answer")
    assert (office.begun(run.pk), office.notices("Tea was served")) == (1, 1)


def test_a_view_that_died_runs_again_and_what_it_had_written_does_not_count(office: Office, notify):
    office.kill_once("in-the-view")
    run = notify("Tea is being served")
    assert office.was_killed("in-the-view")
    assert (office.begun(run.pk), office.notices("Tea is being served")) == (2, 1)
