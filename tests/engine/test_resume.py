"""A finished step is never executed again; a run resumes by name. With other code: test_changed_code.py."""

from agentruns import step


def test_a_finished_step_is_not_executed_again_when_a_later_one_is_retried(declare, start, shop, monkeypatch):
    monkeypatch.setattr("agentruns.outcome.FIRST_PAUSE_SECONDS", 0.01)
    bodies = []

    @step
    def first(ctx):
        bodies.append("first")
        return "one"

    @step
    def second(ctx):
        bodies.append("second")
        if bodies.count("second") < 3:
            raise RuntimeError("not yet")
        return ctx.prior["first"] + " two"

    declare(first, second)
    run = shop.until(start())
    assert run.status == "completed"
    assert bodies == ["first", "second", "second", "second"]
    assert run.steps.get(path="second").value() == "one two"


def test_a_run_that_was_given_back_goes_on_after_its_finished_steps(declare, start, shop):
    bodies = []

    @step
    def first(ctx):
        bodies.append("first")
        return 1

    @step
    def second(ctx):
        bodies.append("second")
        if len(bodies) == 2:
            raise KeyboardInterrupt  # as if the process ended here
        return 2

    declare(first, second)
    run = start()
    try:
        shop.turn()
    except KeyboardInterrupt:
        shop.expire(run)
    assert run.rescue("lease")
    shop.until(run)
    assert bodies == ["first", "second", "second"]
    assert [(one.path, one.number, one.outcome) for one in run.attempts.order_by("pk")] == [
        ("first", 1, "finished"),
        ("second", 1, "interrupted"),
        ("second", 2, "finished"),
    ]


def test_a_finished_sub_step_is_replayed_and_not_executed_again(declare, start, shop, monkeypatch):
    monkeypatch.setattr("agentruns.outcome.FIRST_PAUSE_SECONDS", 0.01)
    bodies = []

    def part(word):
        bodies.append(word)
        return word.upper()

    @step
    def whole(ctx):
        found = [ctx.step("one", part, "a"), ctx.step("two", part, "b")]
        if bodies.count("failed") == 0:
            bodies.append("failed")
            raise RuntimeError("after both parts")
        return found

    declare(whole)
    run = shop.until(start())
    assert run.steps.get(path="whole").value() == ["A", "B"]
    assert bodies == ["a", "b", "failed"]


def test_a_run_whose_plan_is_gone_waits_by_name_and_goes_on_when_it_is_back(declare, start, shop):
    @step
    def only(ctx):
        return "done"

    plan = declare(only)
    run = start()
    declare(only, name="another")
    shop.until(run, "waiting", waiting_for="code")
    assert "trial" in run.reason
    declare(*plan.steps)
    run.retry()
    assert shop.until(run).status == "completed"
