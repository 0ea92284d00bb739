"""An ask is paid once: whatever becomes of its function, its worker or its code, an answer that is there is used."""

from time import monotonic

import pytest
from pydantic import BaseModel, Field

from agentruns import BadAnswer, Incomplete, PermanentError, Refused, step, worker
from agentruns.models import Body, Call, Run, Step
from agentruns.models.ledger import submitted
from agentruns.models.receipt import receipt
from tests.engine.money import (
    ASK,
    bill,
    calls,
    check_bill,
    check_books,
    generations,
    paths_paid,
    posts,
    states,
    tick_until,
)

WORDS = {"type": "object", "properties": {"words": {"type": "array", "items": {"type": "string"}}}}


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch):
    monkeypatch.setattr("agentruns.outcome.FIRST_PAUSE_SECONDS", 0.01)


def asking(prompt="What is a buoy?", fails=0, **options):
    """A step `work` that asks once, and raises afterwards for the first `fails` entries."""
    entered = []

    @step
    def work(ctx):
        entered.append(ctx._entry.number)
        answer = ctx.ask(prompt, **options)
        if len(entered) <= fails:
            raise RuntimeError("after the ask")
        return answer

    work.entered = entered
    return work


@pytest.mark.parametrize("background", ["on", "off"])
def test_an_answer_has_its_usage_cost_and_model_as_the_provider_billed_them(
    background, declare, start, shop, provider, settings
):
    settings.AGENT_BACKGROUND = background
    seen = []

    @step
    def work(ctx):
        answer = ctx.ask("What is a buoy?")
        seen.append((answer.usage, answer.cost, answer.model))
        return answer

    declare(work)
    run = shop.until(start())
    (line,) = generations(provider, run)
    ((usage, cost, model),) = seen
    assert usage == {name: line[f"{name}_tokens"] for name in ("input", "cached", "output", "reasoning")}
    assert (str(cost.normalize()), model) == (line["cost_usd"], "demo")
    assert run.steps.get(path="work").value() == run.steps.get(path=ASK).value()["text"]
    (call,) = calls(run)
    assert (call.response_id, call.key) == (line["id"], line["idempotency_key"])
    check_bill(provider, run)


@pytest.mark.parametrize("background", ["on", "off"])
def test_an_ask_is_replayed_after_its_function_failed_later(background, declare, start, shop, provider, settings):
    settings.AGENT_BACKGROUND = background
    work = asking(fails=2)
    declare(work)
    run = shop.until(start())
    assert run.status == "completed"
    assert len(work.entered) >= 3
    assert len(posts(provider, run)) == 1
    check_bill(provider, run)


def test_an_ask_is_replayed_from_its_step_with_the_same_words_and_figures(declare, start, shop, provider):
    seen = []

    @step
    def work(ctx):
        answer = ctx.ask("What is a buoy?", schema=WORDS)
        seen.append((str(answer), answer.usage, answer.cost, answer.model, answer.data, answer.tool_calls))
        ctx.step("after", lambda: None)  # its checkpoint takes the ask's Step along
        if len(seen) < 3:
            raise RuntimeError("later")

    declare(work)
    run = shop.until(start())
    assert seen[0] == seen[1] == seen[2]
    assert len(posts(provider, run)) == 1


def test_an_answer_that_was_booked_before_a_kill_is_taken_by_the_next_worker(declare, start, shop, provider, deaths):
    declare(asking())
    run = start()
    deaths.at("agentruns.asking.Asking.take", run)
    assert states(run) == ["completed"]
    assert not run.steps.exists()
    shop.until(run)
    assert run.status == "completed"
    assert len(posts(provider, run)) == 1
    check_bill(provider, run)


def test_an_answer_that_was_taken_and_not_checkpointed_is_taken_again(declare, start, shop, provider, deaths):
    declare(asking())
    run = start()
    deaths.at("agentruns.models.Run.checkpoint", run)
    assert not run.steps.exists()
    shop.until(run)
    assert len(posts(provider, run)) == 1
    check_bill(provider, run)


def test_a_call_whose_id_was_stored_before_a_kill_is_attached_to_again(declare, start, shop, provider, deaths):
    declare(asking())
    run = start()
    deaths.at("agentruns.asking.Asking.look_at", run)
    assert states(run) == ["submitted"]
    shop.until(run)
    assert run.status == "completed"
    assert len(posts(provider, run)) == 1
    check_bill(provider, run)


def test_a_call_in_flight_is_settled_for_a_run_whose_worker_is_dead(declare, start, shop, provider, deaths, parked):
    declare(asking())
    run = start()
    deaths.at("agentruns.asking.Asking.look_at", run)
    while states(run) == ["submitted"]:
        shop.tick()
    check_bill(provider, run)


@pytest.mark.parametrize("background", ["on", "off"])
def test_a_kill_between_the_answer_and_our_row_is_paid_once_more_marked_and_under_the_same_key(
    background, declare, start, shop, provider, deaths, settings
):
    settings.AGENT_BACKGROUND = background
    declare(asking())
    run = start()
    deaths.at("agentruns.sending.Sending.book", run)
    assert states(run) == ["intent"]
    shop.until(run)
    assert states(run) == ["unknown", "completed"]
    first, second = calls(run)
    assert (first.maybe_twice, second.maybe_twice) == (False, True)
    assert first.key == second.key == f"{run.pk}:{ASK}"
    assert {post["idempotency_key"] for post in posts(provider, run)} == {first.key}
    check_books(run)
    assert run.spent + run.unknown >= bill(provider, run)  # the ledger is never below the bill


def test_an_intent_of_a_worker_that_died_before_it_sent_is_not_paid_but_counted_as_if(
    declare, start, shop, provider, deaths
):
    declare(asking())
    run = start()
    deaths.at("agentruns.sending.Sending.send", run)
    shop.until(run)
    assert states(run) == ["unknown", "completed"]
    assert len(generations(provider, run)) == 1
    assert run.unknown == calls(run)[0].reserved
    assert run.events.filter(kind="call_unknown", path=ASK).count() == 1


def test_a_provider_that_honours_the_key_gives_the_first_answer_even_when_the_code_has_changed(
    declare, start, shop, another, deaths
):
    provider = another(idempotency="on")
    declare(asking("What is a buoy?"))
    run = start()
    deaths.at("agentruns.sending.Sending.book", run)
    declare(asking("What is a lighthouse?"))  # other bytes under the same key would be refused, and paid for nothing
    shop.until(run)
    assert run.status == "completed"
    assert len(generations(provider, run)) == 1
    assert [post["answer"] for post in posts(provider, run)] == ["accepted", "replayed"]
    assert run.events.filter(kind="diverged", path=ASK).count() == 1


def test_a_paid_answer_is_used_although_the_prompt_changed_and_the_page_is_told_once(
    declare, start, shop, provider, deaths
):
    declare(asking("What is a buoy?"))
    run = start()
    deaths.at("agentruns.asking.Asking.take", run)
    declare(asking("What is a lighthouse?", fails=2))
    shop.until(run)
    assert run.status == "completed"
    assert len(posts(provider, run)) == 1
    assert run.events.filter(kind="diverged", path=ASK).count() == 1


def test_the_answer_that_came_first_is_taken_and_the_other_try_is_cancelled(
    declare, start, shop, provider, deaths, parked
):
    @step
    def rest(ctx):
        ctx.sleep("a-while", 600)

    declare(asking("What is a buoy? [demo: slow 30 times=1]"), rest)
    run = start()
    deaths.at("agentruns.sending.Sending.send", run)
    shop.until(run, "waiting", waiting_for="model")
    first, second = calls(run)
    assert (first.state, second.state) == ("unknown", "submitted")
    # What a late webhook would tell: the first was sent, too, and its answer is there before the second's.
    late = provider.answer("What is a buoy?", metadata={"run": str(run.pk), "path": ASK})
    assert submitted(first, late.id)
    check_books(run)
    shop.until(run, "waiting", waiting_for="timer")
    assert run.steps.get(path="work").value() == late.output_text
    tick_until(shop, run, "completed", "cancelled")  # the run is not over, but nobody wants it
    check_bill(provider, run)
    assert receipt(run).lost == calls(run)[1].cost > 0


# --- what an answer has to be -------------------------------------------------------------------------------------


def test_an_answer_that_fits_a_json_schema_is_parsed(declare, start, shop):
    found = []

    @step
    def work(ctx):
        found.append(ctx.ask("List words", schema=WORDS).data)

    declare(work)
    shop.until(start())
    assert isinstance(found[0]["words"], list)


def test_a_pydantic_model_with_aliases_comes_back_as_one_from_every_replay(declare, start, shop, provider):
    class Buoy(BaseModel):
        colour: str = Field(alias="theColour")

    found = []

    @step
    def work(ctx):
        found.append(ctx.ask("Describe a buoy", schema=Buoy).data)
        ctx.step("after", lambda: None)
        if len(found) < 2:
            raise RuntimeError("later")

    declare(work)
    run = shop.until(start())
    assert run.status == "completed", run.reason
    assert isinstance(found[0], Buoy)
    assert found[0] == found[1]
    assert len(posts(provider, run)) == 1


def refuse(answer):
    raise ValueError(f"not good enough: {len(answer)} characters")


@pytest.mark.parametrize(
    "wrong", [{"check": refuse}, {"schema": {"type": "object", "required": ["never"], "minProperties": 99}}]
)
def test_an_answer_that_does_not_fit_is_asked_for_again_up_to_the_retries_and_then_is_a_bad_answer(
    wrong, declare, start, shop, provider
):
    caught = []

    @step(retries=2)
    def work(ctx):
        try:
            ctx.ask("What is a buoy?", **wrong)
        except BadAnswer as bad:
            caught.append(bad)
            raise

    declare(work)
    run = shop.until(start())
    assert run.status == "failed"
    assert len(caught) == 1, "it is permanent"
    assert caught[0].text == calls(run)[-1].reply()["text"] != ""
    assert [one.key for one in calls(run)] == [f"{run.pk}:{ASK}{end}" for end in ("", "~2", "~3")]
    assert len(generations(provider, run)) == 3
    check_bill(provider, run)


def test_a_later_answer_that_fits_is_taken_and_all_are_paid(declare, start, shop, provider):
    seen = []

    def only_the_second(answer):
        seen.append(answer)
        if len(seen) < 2:
            raise ValueError("once more")

    declare(asking(check=only_the_second))
    run = shop.until(start())
    assert run.status == "completed"
    assert states(run) == ["completed", "completed"]
    check_bill(provider, run)


def test_an_author_who_catches_a_bad_answer_goes_on_and_pays_it_only_once(declare, start, shop, provider):
    entered = []

    @step(retries=1)
    def work(ctx):
        entered.append(1)
        try:
            return ctx.ask("What is a buoy?", check=refuse)
        except BadAnswer:
            simpler = ctx.ask("What is a buoy, simply?", name="simpler")
        if len(entered) < 2:
            raise RuntimeError("later")
        return simpler

    declare(work)
    run = shop.until(start())
    assert run.status == "completed"
    assert paths_paid(provider, run) == {ASK: 2, "work/simpler": 1}
    check_bill(provider, run)


def test_a_persons_retry_asks_a_bad_answer_the_full_number_of_times_again(declare, start, shop, provider):
    @step(retries=1)
    def work(ctx):
        return ctx.ask("What is a buoy?", check=refuse)

    declare(work)
    run = shop.until(start())
    run.retry()
    shop.until(run)
    assert run.status == "failed"
    assert len(generations(provider, run)) == 4
    check_bill(provider, run)


@pytest.mark.parametrize(
    ("fault", "kind", "state"), [("incomplete", Incomplete, "incomplete"), ("refuse", Refused, "completed")]
)
@pytest.mark.parametrize("background", ["on", "off"])
def test_an_answer_that_ended_early_or_declined_is_paid_raised_at_once_and_asked_anew_only_by_a_person(
    fault, kind, state, background, declare, start, shop, provider, settings
):
    settings.AGENT_BACKGROUND = background
    caught = []

    @step
    def work(ctx):
        try:
            return ctx.ask(f"What is a buoy? [demo: {fault} times=1]")
        except kind as error:
            caught.append(error)
            if len(caught) < 3:
                raise RuntimeError("the step is entered again") from error
            raise

    declare(work)
    run = shop.until(start())
    assert run.status == "failed"
    assert len(caught) == 3
    assert states(run) == [state]
    assert len(generations(provider, run)) == 1
    assert run.spent > 0
    run.retry()
    shop.until(run)
    assert run.status == "completed"
    assert len(generations(provider, run)) == 2
    check_bill(provider, run)


def test_the_text_of_an_answer_that_ended_early_is_in_the_exception(declare, start, shop):
    @step
    def work(ctx):
        try:
            return ctx.ask("Write a report on buoys", max_output_tokens=16)
        except Incomplete as early:
            return [early.code, early.text]

    declare(work)
    run = shop.until(start())
    code, text = run.steps.get(path="work").value()
    assert code == "max_output_tokens"
    assert text == calls(run)[0].reply()["text"]


def test_a_turn_that_calls_a_tool_is_an_answer_without_the_schemas_data(declare, start, shop):
    tool = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}

    @step
    def work(ctx):
        answer = ctx.ask("Look it up", tools=[tool], schema=WORDS)
        return [answer.tool_calls[0]["name"], answer.data]

    declare(work)
    run = shop.until(start())
    assert run.steps.get(path="work").value() == ["look", None]


# --- what is refused before it is paid ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"schema": {"type": "nonsense"}},
        {"schema": "object"},
        {"max_output_tokens": 0},
        {"max_output_tokens": -5},
        {"tools": [{"type": "web_search"}]},
        {"instructions": {"a": (1, 2)}},
    ],
)
def test_what_could_only_fail_once_it_was_paid_is_refused_before(wrong, declare, start, shop, provider):
    declare(asking(**wrong))
    run = shop.until(start())
    assert run.status == "failed"
    assert not posts(provider, run)
    assert not Call.objects.filter(run=run).exists()


def test_two_asks_of_one_name_are_an_error_that_says_so(declare, start, shop, provider):
    @step
    def work(ctx):
        ctx.ask("What is a buoy?")
        ctx.ask("What is a lighthouse?")

    declare(work)
    run = shop.until(start())
    assert run.status == "failed"
    assert "name='second'" in run.reason
    assert len(posts(provider, run)) == 1


def test_a_path_as_long_as_allowed_is_stored_with_its_key(declare, start, shop, provider):
    name, inner = "s" * 64, "p" * 64

    @step(name=name)
    def work(ctx):
        return ctx.step(inner, deeper)

    @step
    def deeper(ctx):
        return ctx.ask("What is a buoy?", name="a" * 64, check=refuse)

    declare(work)
    run = shop.until(start())
    assert run.status == "failed"
    assert "refused" in run.reason  # by the check: the database took the key
    assert len(generations(provider, run)) == 4


def test_a_stale_worker_that_wakes_up_after_its_run_was_finished_by_another_pays_nothing(
    declare, start, shop, provider
):
    declare(asking())
    run = start()
    stale = shop.claim()
    shop.expire(run)
    assert run.rescue("lease")
    shop.until(run)
    assert worker.work(stale, monotonic(), monotonic() + 5) == "lost"
    assert len(posts(provider, run)) == 1
    assert Step.objects.filter(run=run, path=ASK).count() == 1
    assert Run.objects.get(pk=run.pk).status == "completed"


def test_an_answer_that_cannot_be_read_stops_the_run_by_name_and_is_not_paid_again(
    declare, start, shop, provider, deaths
):
    declare(asking("Write a report on: buoys. Cover ## Colours ## Lights ## Moorings ## Bells ## History"))
    run = start()
    deaths.at("agentruns.asking.Asking.take", run)
    (call,) = calls(run)
    text = "long " * 1000
    Call.objects.filter(pk=call.pk).update(answer=None, answer_body=Body.keep({"text": text})[1])
    Body.objects.all().delete()
    shop.until(run, "waiting", waiting_for="operator")
    assert "cannot be read" in run.reason
    assert ASK in run.reason
    Body.keep({"text": text})
    run.retry()
    shop.until(run)
    assert run.status == "completed"
    assert len(posts(provider, run)) == 1


def test_a_permanent_error_after_an_ask_keeps_the_answer_for_a_persons_retry(declare, start, shop, provider):
    entered = []

    @step
    def work(ctx):
        answer = ctx.ask("What is a buoy?")
        entered.append(1)
        if len(entered) == 1:
            raise PermanentError("look at this first")
        return answer

    declare(work)
    run = shop.until(start())
    assert run.status == "failed"
    run.retry()
    assert shop.until(run).status == "completed"
    assert len(posts(provider, run)) == 1
