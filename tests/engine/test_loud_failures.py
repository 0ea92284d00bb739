"""Only a run with no finished step is a first run: what cannot be loaded stops it by name, and is never begun anew."""

from collections import Counter
from contextlib import contextmanager

import pytest
from django.db import DatabaseError, InternalError, OperationalError, ProgrammingError, connection

from agentruns import step
from tests.engine.hands import failing
from tests.engine.money import paths_paid


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("agentruns.outcome.FIRST_PAUSE_SECONDS", 0.01)


@pytest.fixture
def did():
    return Counter()


@pytest.fixture
def halfway(declare, start, shop, parked, did):
    """A run with a finished step, and a part, an answer and a sleep under the next."""

    def part(name):
        did[name] += 1
        return name

    @step
    def first(ctx):
        return ctx.ask("How do tides work?")

    @step
    def second(ctx):
        said = ctx.ask("Why is the sea salt?")
        ctx.step("part", part, "part")
        ctx.sleep("nap", 0.2)
        return [said, ctx.prior["first"]]

    declare(first, second)
    run = start()
    shop.until(run, "waiting", waiting_for="timer")
    assert run.steps.filter(path="second/part").exists()
    return run


LASTING = {
    "permission": ProgrammingError("permission denied for table"),
    "corruption": DatabaseError("database disk image is malformed"),
    "a broken index": InternalError("index contains unexpected zero page"),
}


def turn(shop, run) -> None:
    """The worker's alone: the trouble would be the clock's, too, and it says so in its log."""
    run.refresh_from_db()
    run.wake()
    shop.turn()
    run.refresh_from_db()


def check_that_it_goes_on(shop, run, provider, did) -> None:
    assert shop.until(run).status == "completed"
    assert did == {"part": 1}
    assert paths_paid(provider, run) == {"first/ask": 1, "second/ask": 1}


@pytest.mark.parametrize("table", ["agentruns_step", "agentruns_call", "agentruns_attempt"])
@pytest.mark.parametrize("error", LASTING.values(), ids=LASTING)
def test_what_cannot_be_loaded_stops_the_run_by_name_and_is_not_begun_anew(halfway, shop, provider, did, error, table):
    run = halfway
    with failing(error, on=f'"{table}"."{COLUMN_READ[table]}"'):
        turn(shop, run)
    assert (run.status, run.waiting_for) == ("waiting", "operator"), run.reason
    assert str(error) in run.reason
    run.retry()
    check_that_it_goes_on(shop, run, provider, did)


# One that the worker reads before it goes on, and does not read when it parks.
COLUMN_READ = {
    "agentruns_step": "path",
    "agentruns_call": "fingerprint",
    "agentruns_attempt": "outcome",
}


def test_a_database_that_is_away_for_a_moment_is_tried_again_by_itself(halfway, shop, provider, did):
    with failing(OperationalError("the connection was lost"), on='FROM "agentruns_step"'):
        turn(shop, halfway)
    assert (halfway.status, halfway.waiting_for) == ("waiting", "retry"), halfway.reason
    check_that_it_goes_on(shop, halfway, provider, did)


@contextmanager
def renamed(table: str, column: str):
    """A schema from the future, in which the column is called something else."""
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO later")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE {table} RENAME COLUMN later TO {column}")


@pytest.mark.parametrize(("table", "column"), [("agentruns_step", "labels"), ("agentruns_call", "fingerprint")])
def test_a_newer_schema_stops_the_run_by_name_until_the_code_fits(halfway, shop, provider, did, table, column):
    run = halfway
    with renamed(table, column):
        turn(shop, run)
    assert (run.status, run.waiting_for) == ("waiting", "operator"), run.reason
    assert column in run.reason
    run.retry()
    check_that_it_goes_on(shop, run, provider, did)
