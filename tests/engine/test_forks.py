"""From this step again: what a fork keeps, and what it would do twice."""

import pytest

from agentruns import step
from agentruns.errors import Refusal
from agentruns.models.preview import preview


@pytest.fixture
def finished(declare, start, shop):
    """A completed run of three steps, and the names of the bodies that ran."""
    bodies = []

    def body(name):
        @step(name=name)
        def run_it(ctx):
            bodies.append(name)
            if name == "b":
                return [ctx.step("one", bodies.append, "b/one"), ctx.step("two", bodies.append, "b/two")]
            return name

        return run_it

    declare(body("a"), body("b"), body("c"))
    return shop.until(start()), bodies


def test_a_fork_keeps_what_came_before_and_runs_what_follows(finished, shop):
    run, bodies = finished
    bodies.clear()
    fork = shop.until(run.fork("b"))
    assert fork.status == "completed"
    assert bodies == ["b", "b/one", "b/two", "c"]
    assert fork.steps.get(path="a").value() == "a"
    assert fork.forked_from == run


def test_a_fork_from_a_sub_step_keeps_its_earlier_sisters(finished, shop):
    run, bodies = finished
    bodies.clear()
    shop.until(run.fork("b/two"))
    assert bodies == ["b", "b/two", "c"]


def test_a_fork_pays_for_nothing_that_it_keeps(declare, start, shop, provider):
    @step
    def first(ctx):
        return ctx.ask("Say a word")

    @step
    def second(ctx):
        return len(ctx.prior["first"])

    declare(first, second)
    run = shop.until(start())
    billed = provider.ledger()["generations"]
    fork = shop.until(run.fork("second"))
    assert provider.ledger()["generations"] == billed
    assert fork.spent == 0
    assert fork.steps.get(path="first").value() == run.steps.get(path="first").value()


def test_a_fork_from_an_unknown_step_says_which_there_are(finished):
    run, _ = finished
    with pytest.raises(Refusal, match="a, b, c"):
        run.fork("nowhere")


def test_the_origin_is_left_as_it_was(finished, shop):
    run, _ = finished
    before = list(run.steps.order_by("pk").values_list("path", "finished_at"))
    shop.until(run.fork("a"))
    assert list(run.steps.order_by("pk").values_list("path", "finished_at")) == before


def test_a_preview_names_what_is_reused_and_what_would_run(finished):
    run, _ = finished
    found = [(line.path, line.verdict) for line in preview(run, "b")]
    assert found == [
        ("a", "reused"),
        ("b", "to_run"),
        ("c", "to_run"),
    ]
    assert [line.verdict for line in preview(run)] == ["reused"] * 3
