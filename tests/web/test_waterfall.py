"""The bars of a step: what was cut off, what came before and after it, and what is still at work."""

from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User

from agentruns.models import Attempt, Run, Step
from agentruns.models.receipt import receipt
from agentruns.models.step_lines import steps
from agentruns.web.bars import Bar
from agentruns.web.waterfall import Waterfall, waterfall

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def at(second: float) -> datetime:
    return NOON + timedelta(seconds=second)


@pytest.fixture
def run(ada: User) -> Run:
    run = Run.start("two", "Tides", model="demo", owner=ada)
    Run.objects.update(created_at=NOON, started_at=NOON, status="completed", ended_at=at(100), at_path="")
    return run


def tried(run: Run, number: int, start: float, end: float, outcome: str, cause: str = "") -> None:
    Attempt.objects.create(
        run=run, path="first", number=number, started_at=at(start), ended_at=at(end), outcome=outcome, cause=cause
    )


def finished(run: Run, start: float, end: float) -> None:
    Step.objects.create(
        run=run, path="first", top="first", kind="step", labels=[], reads=[], started_at=at(start), finished_at=at(end)
    )


def drawn(run: Run) -> Waterfall:
    run.refresh_from_db()
    paid = receipt(run)
    return waterfall(run, steps(run, paid), paid, shrink=False)


def kinds(bars: list[Bar]) -> list[tuple[str, int]]:
    """(kind, where it begins in whole percent)."""
    return [(bar.kind, round(float(bar.x.rstrip("%")))) for bar in bars]


def test_a_parked_and_woken_step_is_one_bar(run: Run):
    tried(run, 1, 10, 11, "parked")
    tried(run, 2, 40, 50, "finished")
    finished(run, 10, 50)
    assert kinds(drawn(run).rows[0].bars) == [("f-ok", 11)]


def test_what_was_cut_off_stands_between_what_came_before_and_after(run: Run):
    tried(run, 1, 10, 11, "parked")
    tried(run, 2, 30, 40, "interrupted", "crash")
    tried(run, 3, 60, 80, "finished")
    finished(run, 10, 80)
    fall = drawn(run)
    assert kinds(fall.rows[0].bars) == [("f-ok", 11), ("lost", 30), ("f-ok", 59)]
    assert [mark.label for mark in fall.resumes] == ["worker died 20s"]
    assert fall.has_setbacks


def test_a_step_whose_last_try_failed_ends_with_that(run: Run):
    Run.objects.update(status="failed", at_path="first")
    tried(run, 1, 0, 20, "failed")
    tried(run, 2, 30, 50, "failed")
    fall = drawn(run)
    assert kinds(fall.rows[0].bars) == [("lost", 1), ("lost", 30)]
    assert fall.rows[0].try_number == 2
    assert fall.now == ""


def test_times_in_which_nothing_ran_are_marked(run: Run):
    tried(run, 1, 0, 20, "parked")
    tried(run, 2, 80, 100, "finished")
    finished(run, 0, 100)
    assert [gap.title for gap in drawn(run).gaps] == ["nothing ran for 1m 00s"]


def test_a_run_that_has_not_begun_has_neither_bars_nor_gaps(ada: User):
    fall = drawn(Run.start("two", "Tides", model="demo", owner=ada))
    assert [row.bars for row in fall.rows] == [[], []]
    assert fall.gaps == []
