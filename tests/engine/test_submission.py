"""How a run begins: the same key is the same run, bad input is refused with its remedy, and nothing is stored then."""

import re
from decimal import Decimal

import pytest
from django.contrib.auth import get_user_model
from django.db import OperationalError

from agentruns import step
from agentruns.errors import Refusal
from agentruns.models import IdempotencyKey, Run
from agentruns.models.submission import TASK_BYTES
from tests.engine.hands import at_once


@step
def only(ctx):
    return "done"


@pytest.fixture
def begin(declare, start):
    declare(only, budget="2.50")
    return start


def test_a_submission_is_kept_before_anyone_is_rung_for_it(begin):
    run = begin("Say a word\nand another", params={"tone": "dry"}, budget="1.25")
    assert (run.status, run.at_path, run.title, run.params) == ("queued", "only", "Say a word", {"tone": "dry"})
    assert run.budget == Decimal("1.25")
    assert list(run.events.values_list("kind", "version")) == [("started", 1)]


def test_without_a_key_each_submission_is_a_run_of_its_own(begin):
    assert len({begin().pk, begin().pk, begin(key="").pk, begin(key="  ").pk, begin(key=None).pk}) == 5


def test_the_same_key_with_the_same_input_is_the_same_run(begin):
    first = begin("A task", key="order-7", params={"a": 1, "b": 2})
    again = begin("A task", key=" order-7 ", params={"b": 2, "a": 1}, budget="9")
    assert again.pk == first.pk
    assert again.budget == Decimal("2.50")
    assert Run.objects.count() == 1


@pytest.mark.parametrize(
    "other", [{"task": "Another task"}, {"params": {"a": 2}}, {"model": "gpt-5-mini"}], ids=["task", "params", "model"]
)
def test_the_same_key_with_other_input_is_refused_and_names_the_run(begin, other):
    asked = {"task": "A task", "params": {"a": 1}, "key": "order-7"}
    first = begin(**asked)
    with pytest.raises(Refusal, match=f"already started run {first.pk} with other input"):
        begin(**asked | other)
    assert Run.objects.count() == 1


def test_a_key_is_its_owners_own(begin):
    ada, ben = (get_user_model().objects.create_user(name) for name in ("ada", "ben"))
    runs = [begin("Of " + name, key="order-7", owner=owner) for name, owner in (("a", ada), ("b", ben), ("n", None))]
    assert len({run.pk for run in runs}) == 3
    assert begin("Of a", key="order-7", owner=ada).pk == runs[0].pk


def test_twenty_submissions_at_once_under_one_key_are_one_run(begin):
    runs = at_once(20, lambda _: begin("A task", key="order-7"))
    assert len({run.pk for run in runs}) == 1
    assert Run.objects.count() == IdempotencyKey.objects.count() == 1


def test_a_submission_whose_commit_was_not_answered_is_found_by_its_key(begin, line):
    line.commits, line.lost = 0, {1}
    run = begin("A task")
    assert Run.objects.get().pk == run.pk


def test_a_submission_that_the_database_did_not_take_is_an_error_and_no_run(begin, line):
    line.commits, line.refused = 0, {1}
    with pytest.raises(OperationalError):
        begin("A task")
    assert not Run.objects.exists()


BAD_INPUT = {
    "an unknown plan": ({"plan": "nope"}, "no plan called 'nope'. Plans here: trial"),
    "a plan that is no name": ({"plan": ["trial"]}, "no plan called"),
    "no task": ({"task": ""}, "The task is empty"),
    "a blank task": ({"task": " \n\t "}, "The task is empty"),
    "a task that is no text": ({"task": 7}, "The task is empty"),
    "a 1 MB task": ({"task": "x" * 2**20}, f"1,048,576 bytes; the limit is {TASK_BYTES:,}"),
    "a task of split characters": ({"task": "\ud83d\ude00"}, "two surrogates"),
    "a negative budget": ({"budget": "-1"}, "must be above zero"),
    "a budget of nothing": ({"budget": 0}, "must be above zero"),
    "a budget of less than the ledger's unit": ({"budget": "0.00001"}, "under $0.0001"),
    "a budget in words": ({"budget": "abc"}, "'abc' is not an amount"),
    "an absurd budget": ({"budget": "1e30"}, "over the limit of $100,000"),
    "a budget that is not a number": ({"budget": "NaN"}, "must be above zero"),
    "an endless budget": ({"budget": "Infinity"}, "must be above zero"),
    "a budget that is a list": ({"budget": [5]}, "is not an amount"),
    "params that are a list": ({"params": [1]}, "must be a JSON object"),
    "params that are text": ({"params": "{}"}, "must be a JSON object"),
    "params that JSON cannot keep": ({"params": {"at": {1, 2}}}, "cannot be stored"),
    "params of 300 KB": ({"params": {"a": "x" * 300_000}}, "The parameters have 300,008 bytes"),
    "a model without a price": ({"model": "no-such-model"}, "No price is known for model 'no-such-model'"),
    "a model that is no name": ({"model": "x" * 101}, "at most 100 printable characters"),
    "a model with a NUL": ({"model": "gpt\0"}, "at most 100 printable characters"),
    "a key that is too long": ({"key": "k" * 201}, "at most 200 printable characters"),
    "a key that cannot be printed": ({"key": "a\0b"}, "at most 200 printable characters"),
    "a key that is a number": ({"key": 7}, "must be a text"),
    "a time limit in the past": ({"minutes": -5}, "must be minutes"),
    "no time at all": ({"minutes": 0}, "must be minutes"),
    "a time limit that is not a number": ({"minutes": float("nan")}, "must be minutes"),
    "an endless time limit": ({"minutes": "inf"}, "must be minutes"),
}


@pytest.mark.parametrize(("given", "said"), BAD_INPUT.values(), ids=BAD_INPUT)
def test_bad_input_is_refused_with_a_sentence_and_nothing_is_stored(begin, given, said):
    begin  # noqa: B018 - declares the plan
    with pytest.raises(Refusal, match=re.escape(said)) as refused:
        Run.start(**{"plan": "trial", "task": "A task"} | given)
    assert len(str(refused.value)) < 400
    assert not Run.objects.exists() and not IdempotencyKey.objects.exists()


GOOD_BUDGETS = {"5": "5", " $2.50 ": "2.5", "0.0001": "0.0001", "100000": "100000", 3: "3", 1.1: "1.1", None: "2.5"}


@pytest.mark.parametrize(("given", "usd"), GOOD_BUDGETS.items())
def test_a_budget_may_be_written_as_people_write_it(begin, given, usd):
    assert begin(budget=given).budget == Decimal(usd)


def test_a_title_is_the_first_line_that_says_something_and_can_be_printed(begin):
    assert begin("\n  \n  Über\u202eevil\0  \nmore").title == "Über\ufffdevil\ufffd"
    assert begin("x" * 500).title == "x" * 200
