"""What is finished comes back by name, in few queries and little memory, however much it is."""

import random
import re
from contextlib import contextmanager

import pytest
from django.db import connection

from agentruns import encoding, step
from agentruns.models import Attempt, Body, Run, Step
from agentruns.models.step import seal_of
from agentruns.replay import AHEAD, PAGE, Replay
from tests.engine.hands import step_of

MANY = 3 * PAGE + 7


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("agentruns.outcome.FIRST_PAUSE_SECONDS", 0.01)


class Reads:
    """Statements of this thread that read checkpoints or bodies, and the rows that came of them."""

    def __init__(self):
        self.statements, self.rows = [], 0

    def __call__(self, execute, sql, *rest):
        if re.search('FROM "agentruns_(step|body)"', sql) and sql.startswith("SELECT"):
            self.statements.append(sql)
        return execute(sql, *rest)

    def of(self, column: str) -> list[str]:
        return [sql for sql in self.statements if f'"{column}"' in sql.partition(" FROM ")[0]]


@contextmanager
def reads():
    found = Reads()
    with connection.execute_wrapper(found):
        yield found


def sealed(run: Run, path: str, value, kind: str) -> Step:
    row = step_of(run, path, value, kind)
    row.seal = seal_of(path, kind, encoding.dumps(value), None, encoding.dumps(row.labels))
    return row


@pytest.fixture
def with_parts(declare, start):
    """A run whose step `many` has MANY finished parts, and what goes on with it in the test's own thread."""

    def with_parts(order=None) -> tuple[Run, list]:
        got: list = []

        @step
        def many(ctx):
            for number in order or range(MANY):
                got.append(ctx.step(f"part-{number}", lambda: "done again"))
            return ctx.step("new", lambda: "new")

        declare(many)
        run = start()
        Step.objects.bulk_create(sealed(run, f"many/part-{n}", [n, "x" * 2000], "part") for n in range(MANY))
        return run, got

    return with_parts


def test_parts_are_replayed_in_pages_and_each_is_read_about_once(with_parts, shop):
    run, got = with_parts()
    with reads() as read:
        assert shop.until(run).status == "completed"
    assert got == [[n, "x" * 2000] for n in range(MANY)]
    assert len(read.of("output")) <= MANY / PAGE + PAGE.bit_length() + 1


def test_parts_that_are_asked_for_in_any_order_take_a_query_each_at_most(with_parts, shop):
    order = list(range(MANY))
    random.Random(7).shuffle(order)
    run, got = with_parts(order)
    with reads() as read:
        assert shop.until(run).status == "completed"
    assert got == [[n, "x" * 2000] for n in order]
    assert len(read.of("output")) <= MANY


def test_what_was_read_ahead_and_what_was_handed_out_is_not_held(with_parts):
    run, _ = with_parts()
    replay = Replay(run, "many")
    for number in range(MANY):
        row = replay.get(f"many/part-{number}")
        assert row is not None
        assert len(replay._ahead) <= PAGE
    for number in range(0, MANY, 3):  # as threads of a map would: here and there
        replay.get(f"many/part-{number}")
    assert len(replay._ahead) <= AHEAD


def test_another_runs_rows_between_those_of_a_page_are_not_taken_for_them(with_parts, start):
    run, other = with_parts()[0], start("another")
    for number in range(8):
        step_of(run, f"one/part-{number}", f"mine {number}", "part").save()
        step_of(other, f"one/part-{number}", f"theirs {number}", "part").save()
    replay = Replay(run, "one")
    assert [replay.get(f"one/part-{n}").value() for n in range(8)] == [f"mine {n}" for n in range(8)]


def test_finished_top_level_steps_are_known_without_reading_any_output(declare, start, shop):
    finished = [f"part-{number}" for number in range(MANY)]

    @step
    def last(ctx):
        return ctx.prior["part-7"]

    declare(*(step(name=name)(lambda ctx: "done again") for name in finished), last)
    run = start()
    Step.objects.bulk_create(sealed(run, name, name, "step") for name in finished)
    rows = [step_of(run, name) for name in finished]
    Attempt.objects.bulk_create(
        Attempt(run=run, path=row.path, number=1, ended_at=row.finished_at, outcome="finished") for row in rows
    )
    with reads() as read:
        assert shop.until(run).status == "completed"
    assert run.steps.get(path="last").value() == "part-7"
    assert len(read.of("output")) == 1
    assert len(read.statements) <= 4


def test_a_body_is_loaded_once_for_each_time_that_its_output_is_read(declare, start, shop):
    large, failures = "large " * 100_000, ["once"]

    @step
    def first(ctx):
        return large

    @step
    def second(ctx):
        ctx.step("part", lambda: large)
        ctx.step("another", lambda: large)
        if failures:
            raise RuntimeError(failures.pop())
        return "done"

    @step
    def third(ctx):
        return len(ctx.prior["first"])

    declare(first, second, third)
    with reads() as read:
        run = shop.until(start())
    assert run.status == "completed"
    replayed, prior = 2, 1
    assert len([sql for sql in read.statements if "agentruns_body" in sql]) == replayed + prior
    assert Body.objects.count() == 1
