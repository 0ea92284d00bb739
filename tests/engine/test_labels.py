"""Labels say where a value came from: they are stored with it, handed on, and lowered by nothing."""

from agentruns import step
from agentruns.models import Step
from tests.engine.money import ASK, posts


def labels(run, path):
    return run.steps.get(path=path).labels


def test_a_step_that_reads_nothing_is_trusted_and_one_that_read_the_task_is_the_users(declare, start, shop):
    @step
    def plain(ctx):
        return 1

    @step
    def tasked(ctx):
        return len(ctx.task)

    @step
    def given(ctx):
        return len(ctx.params)

    declare(plain, tasked, given)
    run = shop.until(start())
    assert [labels(run, path) for path in ("plain", "tasked", "given")] == [["trusted"], ["user"], ["user"]]


def test_an_ask_carries_what_its_function_had_been_handed_before_it_and_not_after(declare, start, shop):
    @step
    def work(ctx):
        before = ctx.ask("What is a buoy?", name="before")
        page = ctx.external("a page", source="https://example.org")
        after = ctx.ask(f"What is on this page? {page}", name="after")
        return [before, after]

    declare(work)
    run = shop.until(start())
    assert labels(run, "work/before") == ["trusted"]
    assert labels(run, "work/after") == ["trusted", "external"]
    assert labels(run, "work") == ["trusted", "external"]


def test_a_label_goes_on_through_prior_sub_steps_and_asks_as_a_union(declare, start, shop):
    @step
    def fetch(ctx):
        return ctx.external("a page", source="https://example.org")

    @step
    def inner(ctx, word):
        return ctx.ask(f"What is {word}?") + ctx.task

    @step
    def work(ctx):
        ctx.step("clean", len, "abc")
        found = ctx.step("inner", inner, "a buoy")
        ctx.step("between", len, found)
        return ctx.prior["fetch"] + ctx.ask("Sum it up")

    declare(fetch, work)
    run = shop.until(start())
    assert labels(run, "fetch") == ["external"]
    assert labels(run, "work/clean") == ["trusted"]
    assert labels(run, "work/inner/ask") == ["trusted"]
    assert labels(run, "work/inner") == ["trusted", "user"]
    assert labels(run, "work/between") == ["trusted", "user"]
    assert labels(run, ASK) == ["trusted", "user", "external"]
    assert labels(run, "work") == ["trusted", "user", "external"]


def test_a_replayed_row_hands_out_what_was_stored(declare, start, shop, provider, monkeypatch):
    """Also when the function, on its way there, meets less than it did the first time."""
    monkeypatch.setattr("agentruns.outcome.FIRST_PAUSE_SECONDS", 0.01)
    entered = []

    @step
    def work(ctx):
        entered.append(1)
        if len(entered) == 1:
            ctx.external("a page", source="https://example.org")
        answer = ctx.ask("What is on the page?")
        kept = ctx.step("kept", str.upper, answer)
        if len(entered) == 1:
            raise RuntimeError("once more")
        return kept

    declare(work)
    run = shop.until(start())
    assert len(entered) == 2
    assert len(posts(provider, run)) == 1
    assert labels(run, "work") == ["external"]


def test_a_paid_answer_that_no_step_had_taken_yet_does_not_lose_its_labels(declare, start, shop, provider, deaths):
    """The call was made with a page in its prompt; the worker died; the next entry meets the page no more."""
    entered = []

    @step
    def work(ctx):
        entered.append(1)
        if len(entered) == 1:
            ctx.external("a page", source="https://example.org")
        return ctx.ask("What is on the page?")

    declare(work)
    run = start()
    deaths.at("agentruns.asking.Asking.take", run)
    shop.until(run)
    assert len(posts(provider, run)) == 1
    assert labels(run, ASK) == ["trusted", "external"]
    assert labels(run, "work") == ["trusted", "external"]


def test_a_label_that_is_missing_or_unknown_reads_as_external(declare, start, shop):
    @step
    def one(ctx):
        return 1

    @step
    def two(ctx):
        return 2

    @step
    def stop(ctx):
        ctx.sleep("a-while", 3600)

    @step
    def work(ctx):
        return [ctx.prior["one"], ctx.prior["two"]]

    for broken in (None, [], ["Trusted"], "trusted"):
        declare(one, two, stop, work)
        run = start(f"with {broken!r}")
        shop.until(run, "waiting", waiting_for="timer")
        Step.objects.filter(run=run, path="two").update(labels=broken if broken is not None else [])
        run.waits.update(closed_at=run.created_at)
        run.wake()
        shop.until(run)
        assert labels(run, "work") == ["trusted", "external"]


def test_what_a_function_does_with_a_value_outside_ctx_lowers_nothing(declare, start, shop):
    @step
    def fetch(ctx):
        return ctx.external("a page", source="mail")

    @step
    def summary(ctx):
        return ctx.ask(f"Translate: {ctx.prior['fetch']}")

    @step
    def last(ctx):
        return len(ctx.prior["summary"]) > 0

    declare(fetch, summary, last)
    run = shop.until(start())
    assert labels(run, "last") == ["external"]
