"""`@step(atomic=True)`: what the author writes and the checkpoint are one commit, or none."""

from time import monotonic

import pytest
from django.contrib.auth.models import Group

from agentruns import PermanentError, step, worker


def names() -> list[str]:
    return list(Group.objects.values_list("name", flat=True))


@step(atomic=True)
def writes(ctx):
    Group.objects.create(name=f"of {ctx.key}")
    return "written"


@step
def after(ctx):
    return ctx.prior["writes"]


def test_what_it_writes_and_its_checkpoint_are_one_commit(declare, start, shop, line):
    declare(writes, after)
    run = start()
    held = shop.claim()
    before = line.commits
    worker.work(held, monotonic(), monotonic() + 60)
    assert line.commits - before == 2, "one a step"
    assert names() == [f"of {run.pk}:writes"]
    run.refresh_from_db()
    assert run.status == "completed"
    assert run.steps.get(path="after").value() == "written"


def test_what_it_wrote_before_it_failed_is_undone_and_written_once_in_the_end(declare, start, shop, monkeypatch):
    monkeypatch.setattr("agentruns.outcome.FIRST_PAUSE_SECONDS", 0.01)
    tries = []

    @step(atomic=True)
    def fails_first(ctx):
        Group.objects.create(name="once")
        tries.append(names())
        if len(tries) == 1:
            raise ValueError("not yet")

    declare(fails_first)
    run = shop.until(start())
    assert run.status == "completed"
    assert tries == [["once"], ["once"]]
    assert names() == ["once"]


def test_a_worker_whose_claim_is_over_writes_nothing(declare, start, shop):
    @step(atomic=True)
    def too_late(ctx):
        Group.objects.create(name="by a stale worker")
        ctx._entry.run.fence -= 1  # as a rescue would have made it

    declare(too_late)
    run = start()
    assert worker.work(shop.claim(), monotonic(), monotonic() + 60) == "lost"
    assert names() == []
    assert run.steps.count() == 0


def test_a_commit_whose_answer_was_lost_is_found_and_the_body_not_run_again(declare, start, shop, line):
    declare(writes, after)
    run = start()
    held = shop.claim()
    line.lost = {line.commits + 1}
    assert worker.work(held, monotonic(), monotonic() + 60) == "completed"
    assert names() == [f"of {run.pk}:writes"]
    assert run.attempts.filter(path="writes").count() == 1


def test_a_commit_that_did_not_land_leaves_nothing_and_the_step_runs_again(declare, start, shop, line, monkeypatch):
    monkeypatch.setattr("agentruns.outcome.FIRST_PAUSE_SECONDS", 0.01)
    declare(writes, after)
    run = start()
    held = shop.claim()
    line.refused = {line.commits + 1}
    worker.work(held, monotonic(), monotonic() + 60)
    assert names() == []
    shop.until(run)
    assert run.status == "completed"
    assert names() == [f"of {run.pk}:writes"]


@pytest.mark.parametrize(
    ("what", "use"),
    [
        ("ask", lambda ctx: ctx.ask("What is a lamp?")),
        ("step", lambda ctx: ctx.step("part", str)),
        ("sleep", lambda ctx: ctx.sleep("nap", 1)),
        ("effect", lambda ctx: ctx.effect("post", lambda key: None)),
        ("usage", lambda ctx: ctx.usage("spent", "demo", input_tokens=1)),
        ("external", lambda ctx: ctx.external("text", "web")),
    ],
    ids=["ask", "step", "sleep", "effect", "usage", "external"],
)
def test_what_could_be_rolled_back_or_outlive_it_is_refused(declare, start, shop, provider, what, use):
    @step(atomic=True)
    def greedy(ctx):
        Group.objects.create(name="undone")
        use(ctx)

    declare(greedy)
    run = shop.until(start())
    assert run.status == "failed"
    assert "is atomic and used" in run.reason
    assert "step of its own" in run.reason
    assert (names(), run.calls.count(), run.keys.filter(scope="effect").count()) == ([], 0, 0)


def test_it_reads_the_task_the_parameters_its_key_and_earlier_outputs_and_records_what_it_read(declare, start, shop):
    @step
    def first(ctx):
        return "x" * 5_000

    @step(atomic=True)
    def reads(ctx):
        return [ctx.task, ctx.params, len(ctx.prior["first"]), ctx.key]

    declare(first, reads)
    run = shop.until(start("Do it", params={"a": 1}))
    row = run.steps.get(path="reads")
    assert row.value() == ["Do it", {"a": 1}, 5_000, f"{run.pk}:reads"]
    assert row.reads == ["first"]
    assert set(row.labels) >= {"user"}


def test_it_has_five_seconds_however_long_its_timeout_is(declare, start, shop, monkeypatch):
    monkeypatch.setattr("agentruns.atomic.ATOMIC_SECONDS", 0.3)

    @step(atomic=True, timeout=900, retries=0)
    def endless(ctx):
        Group.objects.create(name="undone")
        while True:
            pass

    declare(endless)
    run = shop.until(start())
    assert (run.status, names()) == ("failed", [])
    assert "StepTimeout" in run.reason


def test_it_is_no_sub_step(declare, start, shop):
    @step
    def outer(ctx):
        return ctx.step("inner", writes)

    declare(outer)
    run = shop.until(start())
    assert run.status == "failed"
    assert "must be a step of the plan" in run.reason
    assert names() == []


def test_a_permanent_error_undoes_it_too(declare, start, shop):
    @step(atomic=True)
    def gives_up(ctx):
        Group.objects.create(name="undone")
        raise PermanentError("no")

    declare(gives_up)
    run = shop.until(start())
    assert (run.status, names()) == ("failed", [])
