"""The agent loop: each turn and each tool call a durable step; nothing is asked, paid or done twice."""

import pytest

from agentruns import Plan, PlanError, run_agent, step, tool
from agentruns.agent import carried
from agentruns.tools import BadArguments
from tests.engine.money import paths_paid

LOOKED: list[str] = []


@tool
def look_up(word: str) -> str:
    """Looks a word up."""
    LOOKED.append(word)
    return f"{word} means something"


@tool
def add(first: int, second: int = 1) -> int:
    """Adds two numbers."""
    return first + second


@step
def work(ctx):
    return run_agent(ctx, ctx.task, [look_up, add], max_output_tokens=1000)


@pytest.fixture(autouse=True)
def nothing_looked():
    LOOKED.clear()


def test_it_calls_tools_and_answers_in_words_each_turn_paid_once(declare, start, shop, provider):
    declare(work)
    run = shop.until(start("What is a buoy?"))
    assert run.status == "completed", run.reason
    assert len(LOOKED) == 1
    paid = paths_paid(provider, run)
    assert set(paid.values()) == {1}
    assert len(paid) == 3, "two turns that call a tool, and the answer"
    assert run.steps.filter(path__contains="-call:").count() == 2


def test_a_worker_that_dies_after_a_call_does_it_and_pays_nothing_again(declare, start, shop, provider):
    deaths = []

    @step
    def dies(ctx):
        answer = run_agent(ctx, ctx.task, [look_up, add], max_output_tokens=1000)
        if not deaths:
            deaths.append(1)
            raise ConnectionError("cut off")
        return answer

    declare(dies)
    run = shop.until(start("What is a buoy?"))
    assert run.status == "completed"
    assert len(LOOKED) == 1
    assert set(paths_paid(provider, run).values()) == {1}


def test_what_a_tool_brought_comes_from_outside_and_gates_effects(declare, start, shop):
    declare(work)
    run = shop.until(start("What is a buoy?"))
    assert "external" in run.steps.get(path="work").labels


def test_arguments_are_checked_by_the_signature():
    assert add.parsed('{"first": 2}') == {"first": 2, "second": 1}
    for wrong in ('{"first": "2"}', "{}", '{"first": 1, "third": 3}', "not json", "[]"):
        with pytest.raises(BadArguments, match="do not fit add"):
            add.parsed(wrong)


def test_a_tool_is_declared_by_its_docstring_and_types():
    declared = add.declared
    assert (declared["name"], declared["description"]) == ("add", "Adds two numbers.")
    assert declared["parameters"]["properties"]["first"]["type"] == "integer"
    assert declared["parameters"]["required"] == ["first"]


def test_a_tool_without_a_docstring_or_types_is_refused_when_it_is_declared():
    with pytest.raises(PlanError, match="no docstring"):

        @tool
        def silent(word: str) -> str:
            return word

    with pytest.raises(PlanError, match="a name and a type"):

        @tool
        def untyped(word) -> str:
            """Says nothing of its parameter."""
            return word


def test_old_results_are_left_out_by_name_and_the_newest_are_kept():
    items = [{"type": "function_call_output", "call_id": str(n), "output": str(n) * 40_000} for n in range(3)]
    outputs = [item["output"] for item in carried(items)]
    assert outputs[2] == items[2]["output"]
    assert outputs[0] == outputs[1] == "[40,000 characters of an earlier result are left out]"


def test_turns_that_are_used_up_fail_the_run_by_name(declare, start, shop):
    @step
    def impatient(ctx):
        return run_agent(ctx, ctx.task, [look_up, add], max_turns=1, max_output_tokens=1000)

    declare(impatient)
    run = shop.until(start("What is a buoy?"))
    assert run.status == "failed"
    assert "no answer after 1 turns" in run.reason


def test_a_plan_with_an_agent_is_ten_lines():
    assert Plan("agent", [work]).names == ["work"]
