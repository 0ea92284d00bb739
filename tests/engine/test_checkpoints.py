"""One commit a step; and a commit whose answer is lost is looked up, not done twice."""

from time import monotonic

import pytest
from django.db import OperationalError, connection, transaction

from agentruns import step, worker
from agentruns.models import Body, Run
from tests.engine.hands import Commits, at_once, attempt_of, failing, step_of


def numbered(number: int, bodies: list[str] | None = None):
    def run_it(ctx):
        if bodies is not None:
            bodies.append(f"s{number}")
        return f"output {number} " + "x" * 2000

    return step(name=f"s{number}")(run_it)


@pytest.fixture
def work(shop):
    """Claims the run that is due and works on it, with all the time it needs."""

    def work() -> Run:
        run = shop.claim()
        worker.work(run, monotonic(), monotonic() + 60)
        return Run.objects.get(pk=run.pk)

    return work


def test_each_step_is_one_commit_and_the_last_one_completes_the_run(declare, start, shop):
    declare(*[numbered(number) for number in range(7)])
    start()
    run = shop.claim()
    with Commits() as commits:
        worker.work(run, monotonic(), monotonic() + 60)
    run.refresh_from_db()
    assert run.status == "completed"
    assert run.steps.count() == run.attempts.count() == 7
    assert commits.count == 7


def test_a_sub_step_is_one_commit_more_and_a_failure_is_one(declare, start, shop):
    @step
    def parts(ctx):
        ctx.step("one", len, "abc")
        ctx.step("two", len, "abcd")
        raise RuntimeError("then it fails")

    declare(parts)
    start()
    run = shop.claim()
    with Commits() as commits:
        worker.work(run, monotonic(), monotonic() + 60)
    assert Run.objects.get(pk=run.pk).waiting_for == "retry"
    assert commits.count == 3


STORY_COMMITS = 6  # sub-step, first; sleep: park; sub-step of the sleep; second; third, which completes the run


def story(bodies: list[str]):
    @step
    def first(ctx):
        bodies.append("first")
        return ctx.step("part", lambda: bodies.append("part") or "p")

    @step
    def second(ctx):
        bodies.append("second")
        ctx.sleep("nap", 0.01)
        return "s"

    @step
    def third(ctx):
        bodies.append("third")
        return [ctx.prior["first"], ctx.prior["second"]]

    return first, second, third


@pytest.mark.parametrize("how", ["lost", "refused"])
@pytest.mark.parametrize("number", range(1, STORY_COMMITS + 1))
def test_a_broken_commit_costs_nothing_and_repeats_nothing(declare, start, work, line, number, how):
    bodies: list[str] = []
    declare(*story(bodies))
    run = start()
    line.commits = 0
    getattr(line, how).add(number)
    while (run := work()).status != "completed":
        while run.status == "waiting":
            at_once(1, lambda _: Run.wake_due())  # the clock has a line of its own
            run.refresh_from_db()
    assert line.commits == STORY_COMMITS + (how == "refused")
    assert bodies == ["first", "part", "second", "second", "third"]
    assert run.steps.get(path="third").value() == ["p", "s"]
    assert run.events.filter(kind="completed").count() == 1
    assert [(one.path, one.number, one.outcome) for one in run.attempts.order_by("pk")] == [
        ("first", 1, "finished"), ("second", 1, "parked"), ("second", 2, "finished"), ("third", 1, "finished"),
    ]  # fmt: skip


def test_a_checkpoint_is_repeated_after_others_were_given_its_ids(declare, start, shop, line):
    """SQLite hands out the ids of a rolled-back insert again."""
    declare(numbered(0))
    start(), start()
    mine, other = shop.claim(), shop.claim()
    rows, ended = [step_of(mine, "s0")], attempt_of(mine)
    line.commits, line.refused = 0, {1}
    with pytest.raises(OperationalError):
        mine.checkpoint(rows, ended, None, 0, 30, "build")
    other.checkpoint([step_of(other, "s0")], attempt_of(other), None, 0, 30, "build")
    mine.checkpoint(rows, ended, None, 0, 30, "build")
    assert {Run.objects.get(pk=run.pk).status for run in (mine, other)} == {"completed"}


def test_a_release_whose_commit_was_not_answered_is_not_a_lost_lease(declare, start, shop, line):
    declare(numbered(0), numbered(1))
    run = start()
    run = shop.claim()
    line.commits, line.lost = 0, {2}  # 1: the step; 2: the release at the end of the slice
    assert worker.work(run, monotonic(), monotonic()) == "released"
    run.refresh_from_db()
    assert (run.status, run.at_path, run.at_number) == ("queued", "s1", 0)
    assert not run.events.filter(kind="lease_lost").exists()


def test_a_slice_ends_only_after_something_new_was_committed(declare, start, shop):
    bodies: list[str] = []
    declare(numbered(0, bodies), numbered(1, bodies))
    start()
    for expected in (["s0"], ["s0", "s1"]):
        worker.work(shop.claim(), monotonic(), monotonic() - 60)
        assert bodies == expected


def test_database_trouble_in_ctx_is_not_the_authors_exception(declare, start, shop, monkeypatch):
    monkeypatch.setattr("agentruns.outcome.FIRST_PAUSE_SECONDS", 0.01)
    seen: list[str] = []

    @step
    def troubled(ctx):
        seen.append("entered")
        if len(seen) > 1:
            return ctx.step("part", len, "abc")
        try:
            with failing(OperationalError("the server is starting up"), on="agentruns_step"):
                ctx.step("part", len, "abc")
        except Exception:
            seen.append("caught")
        return "made without the part"

    declare(troubled)
    run = shop.until(start())
    assert seen == ["entered", "entered"]
    assert run.steps.get(path="troubled").value() == 3
    first = run.attempts.get(number=1)
    assert (first.outcome, first.cause) == ("interrupted", "database")
    assert "the server is starting up" in first.error
    assert run.failures == 0


def test_trouble_that_lasts_is_met_after_pauses_and_at_last_left_to_a_person(declare, start, shop, monkeypatch):
    monkeypatch.setattr("agentruns.outcome.LONGEST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr("agentruns.engine.FRUITLESS_ENTRIES", 4)

    @step
    def troubled(ctx):
        with failing(OperationalError("never"), on="agentruns_step"):
            ctx.step("part", len, "abc")

    declare(troubled)
    run = shop.until(start(), "waiting", waiting_for="operator")
    assert run.attempts.count() == 4
    assert "4 times in vain" in run.reason


def test_ctx_refuses_to_be_used_inside_a_transaction_that_could_be_rolled_back(declare, start, shop):
    @step
    def careless(ctx):
        with transaction.atomic():
            ctx.step("part", len, "abc")

    declare(careless)
    run = shop.until(start(), "waiting", "failed")
    assert "transaction.atomic()" in (run.reason or run.attempts.get().error)
    assert not run.steps.exists()


def test_a_transaction_that_a_step_left_open_does_not_swallow_our_commits(declare, start, shop):
    @step
    def careless(ctx):
        transaction.set_autocommit(False)
        return "looks done"

    declare(careless)
    run = shop.until(start())
    assert run.status == "failed"
    assert "left a database transaction open" in run.reason
    connection.close()
    run.refresh_from_db()
    assert run.status == "failed"


@pytest.mark.parametrize("damage", ["a flipped byte", "a body that is gone", "cut JSON"])
def test_an_output_that_cannot_be_read_stops_its_run_by_name(declare, start, shop, damage):
    @step
    def long(ctx):
        return "y" * 5000

    @step
    def reader(ctx):
        if not bodies:
            bodies.append("first")
            raise KeyboardInterrupt  # as if the process ended here
        bodies.append(ctx.prior["long"])
        return "read"

    bodies: list[str] = []
    declare(long, reader)
    run = start()
    with pytest.raises(KeyboardInterrupt):
        shop.turn()
    body = run.steps.get(path="long").body
    if damage == "a body that is gone":
        Body.objects.filter(pk=body.pk).delete()
    else:
        content = body.content.replace("y", "z", 1) if damage == "a flipped byte" else body.content[:-10]
        Body.objects.filter(pk=body.pk).update(content=content)
    shop.expire(run)
    assert run.rescue("lease")
    shop.until(run, "waiting", waiting_for="operator")
    assert "step long cannot be read" in run.reason
    assert bodies == ["first"]
    Body.objects.update_or_create(pk=body.pk, defaults={"content": '"' + "y" * 5000 + '"'})
    run.retry()
    assert shop.until(run).status == "completed"
    assert bodies == ["first", "y" * 5000]


@pytest.mark.parametrize("field", ["task", "params"])
def test_a_run_whose_input_cannot_be_read_is_not_started(declare, start, shop, field):
    declare(numbered(0))
    run = start()
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE agentruns_run SET {field} = '{{cut'")
    shop.until(run, "waiting", waiting_for="operator")
    assert f"stored {field} cannot be read" in run.reason
    assert not run.attempts.exists()


def test_a_run_whose_last_step_the_code_merged_into_a_finished_one_is_completed(declare, start, shop):
    declare(numbered(0), numbered(1))
    run = start()
    held = shop.claim()
    worker.work(held, monotonic(), monotonic())  # one step, then the slice is over
    declare(step(name="s0", aliases=["s1"])(lambda ctx: "never run"))
    shop.until(run)
    assert run.status == "completed"
    assert list(run.steps.values_list("path", flat=True)) == ["s0"]


def test_an_engine_that_fails_stops_this_run_by_name_and_no_other(declare, start, shop, monkeypatch):
    monkeypatch.setattr("agentruns.execution.Context", lambda *_: 1 / 0)
    declare(numbered(0))
    run = shop.until(start(), "waiting", waiting_for="operator")
    assert "agentruns itself failed in this run: ZeroDivisionError" in run.reason
    monkeypatch.undo()
    declare(numbered(0))
    run.retry()
    assert shop.until(run).status == "completed"


def test_a_database_that_fails_while_a_worker_looks_back_gives_the_run_back_for_later(
    declare, start, shop, monkeypatch
):
    monkeypatch.setattr("agentruns.outcome.FIRST_PAUSE_SECONDS", 0.5)
    declare(numbered(0))
    run = start()
    held = shop.claim()
    with failing(OperationalError("the server is starting up"), on='SELECT "agentruns_step"'):
        assert worker.work(held, monotonic(), monotonic() + 60) == "parked"
    run.refresh_from_db()
    assert (run.waiting_for, run.at_number, run.losses) == ("retry", 0, 0)
    assert "starting up" in run.reason
    assert shop.until(run).status == "completed"
