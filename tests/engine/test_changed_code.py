"""Code that changes under living runs: each test stops a run with one code and goes on with the next."""

from collections import Counter
from decimal import Decimal

import pytest

from agentruns import PermanentError, RetryLater, step, worker
from agentruns.models import Attempt, Call, IdempotencyKey, Run, Step, Wait
from agentruns.models.moment import in_seconds
from agentruns.models.portrait import portrait
from agentruns.models.preview import preview
from tests.engine.money import paths_paid


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("agentruns.outcome.FIRST_PAUSE_SECONDS", 0.01)


@pytest.fixture
def did():
    """What bodies have run, by name."""
    return Counter()


@pytest.fixture
def body(did):
    """Makes a step whose body is counted, and returns its name."""

    def body(name, *, fails=False, **options):
        def run_it(ctx):
            did[name] += 1
            if fails:
                raise PermanentError("stop here")
            return name

        return step(name=name, **options)(run_it)

    return body


def paths(run: Run) -> list[str]:
    return sorted(Step.objects.filter(run=run).values_list("path", flat=True))


def tops(run: Run) -> set[str]:
    """Top-level names in all the rows of a run."""
    rows = [*Step.objects.filter(run=run), *Call.objects.filter(run=run), *Attempt.objects.filter(run=run)]
    rows += [*IdempotencyKey.objects.filter(run=run).exclude(path=""), *Wait.objects.filter(run=run)]
    return {row.path.split("/")[0] for row in rows}


def verdicts(run: Run, path: str | None = None) -> list[tuple[str, str]]:
    return [(line.path, line.verdict) for line in preview(run, path)]


def go_on(shop, run: Run) -> Run:
    run.refresh_from_db()
    if run.status == "failed":
        run.retry()
    return shop.until(run)


def wake(run: Run) -> None:
    """What it sleeps for is over."""
    Wait.objects.filter(run=run, until__isnull=False).update(until=in_seconds(-1))
    Run.objects.filter(pk=run.pk).update(wake_at=in_seconds(-1))


# --- inserted, removed, reordered -----------------------------------------------------------------------------------


def test_an_inserted_step_runs_when_it_is_reached_and_a_reordered_plan_resumes_by_name(declare, start, shop, body, did):
    declare(body("a"), body("b"), body("c", fails=True))
    run = shop.until(start())
    declare(body("b"), body("new"), body("a"), body("c"))
    assert verdicts(run) == [("b", "reused"), ("new", "new"), ("a", "reused"), ("c", "to_run")]
    assert go_on(shop, run).status == "completed"
    assert did == {"a": 1, "b": 1, "c": 2, "new": 1}


def test_a_step_inserted_before_the_one_at_work_runs_first_and_that_one_goes_on(declare, start, shop, body, did):
    @step
    def nap(ctx):
        did["nap"] += 1
        ctx.sleep("long", 3600)
        return "rested"

    declare(body("a"), nap)
    run = shop.until(start(), "waiting", waiting_for="timer")
    declare(body("a"), body("new"), nap)
    assert verdicts(run) == [("a", "reused"), ("new", "new"), ("nap", "to_run")]
    wake(run)
    assert shop.until(run).status == "completed"
    assert did == {"a": 1, "nap": 2, "new": 1}
    assert paths(run) == ["a", "nap", "nap/long", "new"]
    assert list(run.attempts.filter(path="nap").order_by("number").values_list("number", "outcome")) == [
        (1, "parked"),
        (2, "finished"),
    ]


def test_an_inserted_step_may_park_while_the_one_at_work_before_waits_on(declare, start, shop, body, did):
    @step
    def nap(ctx):
        ctx.sleep("long", 3600)

    @step
    def first(ctx):
        did["first"] += 1
        ctx.sleep("longer", 7200)

    declare(nap, body("last"))
    run = shop.until(start(), "waiting", waiting_for="timer")
    declare(first, nap, body("last"))
    Run.objects.filter(pk=run.pk).update(wake_at=in_seconds(-1))
    shop.tick()
    shop.until(run, "waiting", waiting_for="timer")
    assert run.at_path == "first"
    assert set(Wait.objects.filter(run=run, closed_at=None).values_list("path", flat=True)) == {
        "nap/long",
        "first/longer",
    }
    wake(run)
    assert shop.until(run).status == "completed"


def test_what_is_finished_of_a_removed_step_can_still_be_read_and_is_an_orphan_in_the_preview(
    declare, start, shop, body, did
):
    declare(body("old"), body("gone"), body("c", fails=True), body("never"))
    run = shop.until(start())

    @step(name="c")
    def reads(ctx):
        return [ctx.prior["old"], "old" in ctx.prior, sorted(ctx.prior)]

    declare(body("gone"), reads)
    assert verdicts(run) == [("gone", "reused"), ("c", "to_run"), ("old", "orphaned")]
    assert go_on(shop, run).status == "completed"
    assert run.steps.get(path="c").value() == ["old", True, ["gone"]]
    assert did == {"old": 1, "gone": 1, "c": 1}


# --- gone -----------------------------------------------------------------------------------------------------------


def test_a_step_removed_while_at_work_stops_the_run_by_name_until_a_worker_has_it_again(
    declare, start, shop, body, parked, provider
):
    @step
    def work(ctx):
        return ctx.ask("How do tides work?")

    declare(body("a"), work)
    run = start()
    shop.turn()
    declare(body("a"), body("b"))
    shop.until(run, "waiting", waiting_for="code")
    assert run.reason == "Plan 'trial' has no step 'work' any more."
    assert verdicts(run) == [("a", "reused"), ("b", "new"), ("work", "orphaned")]
    worker.boot()
    run.refresh_from_db()
    assert run.status == "waiting"
    declare(body("a"), body("b"), work)
    worker.boot()
    assert shop.until(run).status == "completed"
    assert paths(run) == ["a", "b", "work", "work/ask"]
    assert paths_paid(provider, run) == {"work/ask": 1}


def test_a_plan_that_is_gone_and_comes_back_renamed_within_goes_on_at_a_workers_boot(declare, start, shop, body, did):
    declare(body("a"), body("b", fails=True), name="trial")
    run = shop.until(start())
    declare(body("x"), name="another")
    run.retry()
    shop.until(run, "waiting", waiting_for="code")
    assert "There is no plan called 'trial'. Plans here: another." in run.reason
    declare(body("a"), body("bee", aliases=["b"]))
    worker.boot()
    assert shop.until(run).status == "completed"
    assert did == {"a": 1, "b": 1, "bee": 1}
    assert paths(run) == ["a", "b"]


# --- renamed --------------------------------------------------------------------------------------------------------


def test_a_renamed_step_with_finished_sub_steps_goes_on_under_its_old_path(declare, start, shop, body, did):
    def part(name):
        did[name] += 1
        return name

    @step
    def write(ctx):
        ctx.step("one", part, "one")
        raise PermanentError("stop here")

    declare(body("a"), write)
    run = shop.until(start())

    @step(aliases=["write"])
    def draft(ctx):
        return [ctx.step("one", part, "one"), ctx.step("two", part, "two"), ctx.key]

    @step
    def check(ctx):
        return ctx.prior["draft"] == ctx.prior["write"] and sorted(ctx.prior)

    declare(body("a"), draft, check)
    assert verdicts(run) == [("a", "reused"), ("draft", "to_run"), ("check", "new")]
    assert go_on(shop, run).status == "completed"
    assert did == {"a": 1, "one": 1, "two": 1}
    assert paths(run) == ["a", "check", "write", "write/one", "write/two"]
    assert run.steps.get(path="write").value() == ["one", "two", f"{run.pk}:write"]
    assert run.steps.get(path="check").value() == ["a", "draft"]
    assert verdicts(run) == [("a", "reused"), ("draft", "renamed"), ("check", "reused")]


def test_a_renamed_step_takes_the_call_that_is_in_flight_under_its_old_path(declare, start, shop, parked, provider):
    @step
    def write(ctx):
        return ctx.ask("How do tides work?")

    declare(write)
    run = start()
    shop.turn()
    assert Call.objects.get(run=run).state == "submitted"
    assert not run.steps.exists()

    @step(aliases=["write"])
    def draft(ctx):
        return ctx.ask("How do tides work?")

    declare(draft)
    assert verdicts(run) == [("draft", "to_run")]
    assert shop.until(run).status == "completed"
    assert tops(run) == {"write"}
    assert paths_paid(provider, run) == {"write/ask": 1}
    assert not run.events.filter(kind="diverged").exists()


def test_a_renamed_step_repeats_its_unknown_effect_under_the_old_key(declare, start, shop):
    sent = []

    def post(text, key):
        sent.append((text, key))
        if len(sent) == 1:
            raise KeyboardInterrupt  # as if the process ended there
        return "sent"

    @step
    def write(ctx):
        return ctx.effect("post", post, "page")

    declare(write)
    run = start()
    with pytest.raises(KeyboardInterrupt):
        shop.turn()
    shop.expire(run)
    assert run.rescue("lease")

    @step(aliases=["write"])
    def draft(ctx):
        return ctx.effect("post", post, "page")

    declare(draft)
    assert shop.until(run).status == "completed"
    assert sent == [("page", f"{run.pk}:write")] * 2
    assert tops(run) == {"write"}


def test_a_renamed_step_that_was_not_begun_goes_by_its_new_name(declare, start, shop, body, did):
    declare(body("a", fails=True), body("write"))
    run = shop.until(start())
    declare(body("a"), body("draft", aliases=["write"]))
    assert verdicts(run) == [("a", "to_run"), ("draft", "new")]
    assert go_on(shop, run).status == "completed"
    assert paths(run) == ["a", "draft"]


def test_the_next_step_renamed_before_it_was_begun_goes_by_its_new_name_on_pages_too(declare, start, shop, body):
    declare(body("write"))
    run = start()
    declare(body("draft", aliases=["write"]))
    assert [line["path"] for line in portrait(run)["steps"]] == ["draft"]
    shop.until(run)
    assert [(line["path"], line["status"]) for line in portrait(run)["steps"]] == [("draft", "finished")]
    assert paths(run) == ["draft"]


@pytest.mark.parametrize("begun", ["write", "compose", "draft"])
def test_a_rename_of_a_rename_goes_on_under_the_name_that_has_rows(declare, start, shop, body, did, begun):
    def part():
        did["part"] += 1
        return "part"

    @step(name=begun)
    def before(ctx):
        ctx.step("part", part)
        raise PermanentError("stop here")

    declare(before)
    run = shop.until(start())

    @step(aliases=["compose", "write"])
    def draft(ctx):
        return ctx.step("part", part)

    @step
    def last(ctx):
        return [name for name in ("write", "compose", "draft", "part") if name in ctx.prior]

    declare(draft, last)
    assert go_on(shop, run).status == "completed"
    assert tops(run) == {begun, "last"}
    assert did == {"part": 1}
    assert run.steps.get(path="last").value() == ["write", "compose", "draft"]


def test_a_step_renamed_and_moved_among_inserted_ones_is_not_executed_again(declare, start, shop, body, did):
    declare(body("a"), body("b"), body("c", fails=True))
    run = shop.until(start())
    declare(body("bee", aliases=["b"]), body("new"), body("sea", aliases=["c"]), body("a"))
    assert verdicts(run) == [("bee", "renamed"), ("new", "new"), ("sea", "to_run"), ("a", "reused")]
    assert go_on(shop, run).status == "completed"
    assert did == {"a": 1, "b": 1, "c": 1, "new": 1, "sea": 1}
    assert paths(run) == ["a", "b", "c", "new"]


def test_a_step_that_is_finished_under_its_new_name_is_not_executed_again_under_an_old_one(
    declare, start, shop, body, did
):
    """A roll-back began it under the old name once more, and the new code came back."""
    declare(body("draft", aliases=["write"]), body("last", fails=True))
    run = shop.until(start())
    declare(body("write", fails=True), body("last"))
    run.retry()
    assert shop.until(run).status == "failed"
    declare(body("draft", aliases=["write"]), body("last"))
    assert go_on(shop, run).status == "completed"
    assert did == {"draft": 1, "write": 1, "last": 2}


def test_a_fork_of_a_renamed_run_begins_where_its_old_name_says(declare, start, shop, body, did):
    declare(body("a"), body("write"), body("c"))
    run = shop.until(start())
    declare(body("a"), body("draft", aliases=["write"]), body("c"))
    assert verdicts(run, "c") == [("a", "reused"), ("draft", "renamed"), ("c", "to_run")]
    fork = run.fork("c")
    assert fork.at_path == "c"
    assert shop.until(fork).status == "completed"
    assert did == {"a": 1, "write": 1, "c": 2}
    again = run.fork("draft")
    assert shop.until(again).status == "completed"
    assert paths(again) == ["a", "c", "draft"]


def test_a_preview_says_what_a_renamed_step_cost_and_is_likely_to_cost(declare, start, shop, provider):
    @step
    def write(ctx):
        return ctx.ask("How do tides work?")

    declare(write)
    run = shop.until(start())
    cost = Call.objects.get(run=run).cost

    @step(aliases=["write"])
    def draft(ctx):
        return ctx.ask("How do tides work?")

    declare(draft)
    another = start("Something else")
    assert [(line.path, line.cost, line.likely) for line in preview(run)] == [("draft", cost, None)]
    assert [(line.path, line.cost, line.likely) for line in preview(another)] == [("draft", Decimal(0), cost)]


# --- changed --------------------------------------------------------------------------------------------------------


def test_a_prompt_that_changed_while_its_call_was_in_flight_is_not_paid_again_and_not_hidden(
    declare, start, shop, parked, provider
):
    prompts = ["How do tides work?"]

    @step
    def work(ctx):
        return ctx.ask(prompts[-1])

    declare(work)
    run = start()
    shop.turn()
    prompts.append("Why is the sea salt?")
    assert shop.until(run).status == "completed"
    assert paths_paid(provider, run) == {"work/ask": 1}
    assert Call.objects.get(run=run).request["input"] == prompts[0]
    assert [event.path for event in run.events.filter(kind="diverged")] == ["work/ask"]


def test_a_prompt_that_changed_under_a_finished_ask_is_not_paid_again_and_is_one_event(declare, start, shop, provider):
    prompts, answers, failures = ["How do tides work?"], [], []

    @step
    def work(ctx):
        answers.append(str(ctx.ask(prompts[-1])))
        ctx.step("kept", lambda: "kept")  # the answer is checkpointed with it
        failures.append(RuntimeError("not yet"))
        if len(failures) < 4:
            raise failures[-1]
        return answers[-1]

    declare(work)
    run = start()
    shop.turn()
    assert paths(run) == ["work/ask", "work/kept"]
    prompts.append("Why is the sea salt?")
    assert shop.until(run).status == "completed"
    assert len(set(answers)) == 1
    assert paths_paid(provider, run) == {"work/ask": 1}
    assert [event.path for event in run.events.filter(kind="diverged")] == ["work/ask"]


def test_the_same_prompt_again_is_no_event(declare, start, shop, provider):
    failures = [RuntimeError("once"), RuntimeError("twice")]

    @step
    def work(ctx):
        answer = ctx.ask("How do tides work?")
        ctx.step("kept", lambda: "kept")
        if failures:
            raise failures.pop()
        return answer

    declare(work)
    run = shop.until(start())
    assert run.status == "completed"
    assert not run.events.filter(kind="diverged").exists()


def test_an_answer_that_no_longer_fits_the_changed_schema_is_named_and_not_paid_again(declare, start, shop, provider):
    schemas = [None, Picky]

    @step(retries=0)
    def work(ctx):
        ctx.ask("[[answer]] {} [[/answer]]", schema={"type": "object"} if schemas.pop(0) is None else Picky)
        ctx.step("kept", lambda: "kept")
        raise PermanentError("stop here")

    declare(work)
    run = shop.until(start())
    assert run.steps.filter(path="work/ask").exists(), run.reason
    go_on(shop, run)
    assert "The stored answer at work/ask does not fit its schema by now" in run.reason
    assert paths_paid(provider, run) == {"work/ask": 1}


class Picky:
    """As pydantic's models do it: reads its schema, and refuses with a ValueError."""

    @staticmethod
    def model_json_schema():
        return {"type": "object"}

    @staticmethod
    def model_validate(data):
        raise ValueError("1 validation error for Picky")


@pytest.fixture
def sender():
    return Sender()


class Sender:
    def __init__(self):
        self.sent, self.script, self.text = [], [], "first"

    def post(self, text, key):
        self.sent.append((text, key.partition(":")[2]))
        if self.script:
            raise self.script.pop(0)
        return f"sent {text}"

    def publishes(self, *after):
        @step(retries=3)
        def publish(ctx):
            answer = ctx.effect("post", self.post, self.text)
            for each in after:
                each(ctx)
            return answer

        return publish


def test_other_arguments_under_an_unknown_key_are_not_sent_and_the_run_waits_for_a_person(declare, start, shop, sender):
    sender.script = [ConnectionError("cut off")]
    declare(sender.publishes())
    run = start()
    shop.turn()
    sender.text = "second"
    shop.until(run, "waiting", waiting_for="effect")
    assert sender.sent == [("first", "publish")]
    run.settle("publish/post", "done", "was sent")
    assert shop.until(run).status == "completed"
    assert sender.sent == [("first", "publish")]
    assert run.steps.get(path="publish").value() == "was sent"
    assert [event.path for event in run.events.filter(kind="diverged")] == ["publish/post"]


def test_other_arguments_under_an_effect_that_is_done_are_not_sent_and_not_hidden(declare, start, shop, sender):
    def change(ctx):
        if sender.text == "first":
            sender.text = "second"
            raise RuntimeError("after the effect")

    declare(sender.publishes(change))
    run = shop.until(start())
    assert run.steps.get(path="publish").value() == "sent first"
    assert sender.sent == [("first", "publish")]
    assert [event.path for event in run.events.filter(kind="diverged")] == ["publish/post"]


def test_other_arguments_under_a_checkpointed_effect_are_not_sent_and_are_one_event(declare, start, shop, sender):
    def keep(ctx):
        ctx.step("kept", lambda: "kept")

    def fail(ctx):
        if len(sender.text) < 3 * len("first"):
            sender.text += "more"
            raise RuntimeError("not yet")

    declare(sender.publishes(keep, fail))
    run = shop.until(start())
    assert run.status == "completed"
    assert sender.sent == [("first", "publish")]
    assert [event.path for event in run.events.filter(kind="diverged")] == ["publish/post"]


def test_other_arguments_under_a_key_that_failed_are_sent_by_a_persons_retry_under_the_next(
    declare, start, shop, sender
):
    sender.script = [RetryLater(60)]
    declare(sender.publishes())
    run = start()
    shop.turn()
    sender.text = "second"
    wake(run)
    assert shop.until(run).status == "failed"
    assert "other arguments under the key" in run.reason
    assert sender.sent == [("first", "publish")]
    assert go_on(shop, run).status == "completed"
    assert sender.sent == [("first", "publish"), ("second", "publish~2")]


KINDS = {
    "part": lambda ctx: ctx.step("x", lambda: {"text": "t"}),
    "ask": lambda ctx: ctx.ask("How do tides work?", name="x"),
    "sleep": lambda ctx: ctx.sleep("x", 0),
    "effect": lambda ctx: ctx.effect("x", lambda key: "sent"),
}


@pytest.mark.parametrize("before", KINDS)
@pytest.mark.parametrize("after", KINDS)
def test_a_sub_step_that_has_become_another_kind_is_refused_by_name(declare, start, shop, provider, before, after):
    code = [before]

    @step
    def work(ctx):
        KINDS[code[-1]](ctx)
        ctx.step("kept", lambda: "kept")
        if len(code) == 1:
            raise PermanentError("stop here")

    declare(work)
    run = shop.until(start())
    paid = paths_paid(provider, run)
    code.append(after)
    go_on(shop, run)
    if before == after:
        assert run.status == "completed"
    else:
        said = f"'work/x' is finished in this run, as {before!r}, and the code makes it {after!r} by now."
        assert (run.status, said in run.reason) == ("failed", True), run.reason
    assert paths_paid(provider, run) == paid
