"""Any bytes come back equal, on both databases, wherever they are kept; or are refused before anything is paid."""

import json
import math

import pytest
from django.db import connection

from agentruns import step
from agentruns.models import Body, Run

TEXTS = {
    "NUL": "before\0after",
    "a lone surrogate": "half \ud800 of",
    "the other half": "\udfff first",
    "not a character": "\uffff \ufffe",
    "bidi": "\u202eevil\u202c \u2066x\u2069",
    "a tag block": "\U000e0041\U000e007f",
    "astral": "\U0001f600 \U0010ffff",
    "controls": "".join(chr(code) for code in range(32)) + "\x7f\x85\u2028\u2029",
    "markup": "</script><!-- ]]> {{ x }} {% y %} ' \" \\ %s",
    "json in text": '{"\\u0000": "\\ud800"}',
    "combining": "e" + "\u0301" * 100,
}
VALUES = TEXTS | {
    "nothing": None,
    "empty": ["", [], {}, 0, False, -0.0],
    "infinities": [math.inf, -math.inf, 1e308, 5e-324],
    "a large number": 10**4000,
    "odd keys": {text: number for number, text in enumerate(TEXTS.values())} | {"": 1},
    "100 levels": json.loads("[" * 99 + "1" + "]" * 99),
    "3 MB": {"text": "\0é\U0001f600" * 150_000, "list": list(range(50_000))},
}


@pytest.fixture
def returned(declare, start, shop):
    """Runs a step that returns `value`, and one that reads it; the run, and what the second saw."""

    def returned(value) -> tuple[Run, list]:
        seen: list = []

        @step
        def giver(ctx):
            return value

        @step
        def reader(ctx):
            seen.append(ctx.prior["giver"])
            return ctx.step("part", lambda: value)

        declare(giver, reader)
        run = shop.until(start())
        connection.close()
        return Run.objects.get(pk=run.pk), seen

    return returned


@pytest.mark.parametrize("name", VALUES)
def test_an_output_comes_back_equal(returned, name):
    run, seen = returned(VALUES[name])
    assert run.status == "completed", run.reason
    kept = [run.steps.get(path=path).value() for path in ("giver", "reader", "reader/part")]
    assert [*seen, *kept] == [VALUES[name]] * 4
    assert [type(value) for value in kept] == [type(VALUES[name])] * 3


def test_not_a_number_comes_back_as_that(returned):
    run, seen = returned([math.nan])
    assert math.isnan(seen[0][0])
    assert math.isnan(run.steps.get(path="giver").value()[0])


def test_a_large_output_is_kept_once_and_apart(returned):
    run, _ = returned(VALUES["3 MB"])
    rows = run.steps.values_list("output", "body_id")
    assert {output for output, _ in rows} == {None}
    assert len({body for _, body in rows}) == Body.objects.count() == 1
    assert len(Body.objects.get().content) > 3 * 2**20


def deep(levels: int):
    value: list = []
    for _ in range(levels):
        value = [value]
    return value


def circular():
    value: list = []
    value += [value, value]
    return value


REFUSED = {
    "a tuple": ((1, 2), "A tuple would come back as a list. Return a list."),
    "a tuple inside": ({"a": [(1,)]}, "Return a list."),
    "a set": ({1}, "set is not JSON serializable. Return plain JSON"),
    "bytes": (b"x", "bytes is not JSON serializable"),
    "a number as key": ({1: "a"}, "JSON keeps only text as keys"),
    "101 levels": (deep(101), "nested deeper than 100 levels"),
    "2,000 levels": (deep(2000), "nested deeper than 100 levels"),
    "itself, twice": (circular(), "over the limit"),
    "a split character": ("\ud83d\ude00", "Join them: text.encode("),
    "a split character as key": ({"\ud83d\ude00": 1}, "Join them: text.encode("),
    "over 10 MB": ("x" * (10 * 2**20), "over the limit of 10,485,760"),
    "a number too long to write": (10**5000, "Return plain JSON"),
}


@pytest.mark.parametrize(("value", "said"), REFUSED.values(), ids=REFUSED)
def test_what_would_not_come_back_equal_is_refused_with_the_remedy_and_not_tried_again(returned, value, said):
    run, seen = returned(value)
    assert (run.status, seen, run.attempts.count()) == ("failed", [], 1)
    assert said in run.reason
    assert not run.steps.exists()


@pytest.mark.parametrize("name", TEXTS)
def test_task_and_params_come_back_equal(declare, start, shop, name):
    given, seen = f"say {TEXTS[name]} twice", []

    @step
    def only(ctx):
        seen.append([ctx.task, ctx.params])
        return "seen"

    declare(only)
    run = shop.until(start(given, params={given: [given]}))
    assert run.status == "completed"
    assert seen == [[given, {given: [given]}]]


@pytest.mark.parametrize("name", TEXTS)
def test_an_error_message_and_its_traceback_come_back_equal(declare, start, shop, name):
    @step(retries=0)
    def faulty(ctx):
        raise ValueError(TEXTS[name])

    declare(faulty)
    run = shop.until(start())
    said = f"ValueError: {TEXTS[name]}"
    attempt = run.attempts.get()
    assert (run.status, run.reason, attempt.error) == ("failed", said, said)
    assert "raise ValueError(TEXTS[name])" in attempt.traceback
    assert run.events.get(kind="failed").about["error"] == said[:300]


def test_an_error_message_of_split_characters_fails_the_run_and_nothing_else(declare, start, shop):
    @step(retries=0)
    def faulty(ctx):
        raise ValueError("\ud83d\ude00")

    declare(faulty)
    assert shop.until(start()).reason == "ValueError: \U0001f600"


def test_a_message_of_megabytes_is_cut(declare, start, shop):
    @step(retries=0)
    def faulty(ctx):
        raise ValueError("x" * 3_000_000)

    declare(faulty)
    attempt = shop.until(start()).attempts.get()
    assert (len(attempt.error), len(attempt.traceback)) == (2000, 20_000)


def test_what_a_step_changes_in_params_no_other_step_sees(declare, start, shop):
    seen: list = []

    def careless(ctx):
        seen.append(ctx.params)
        ctx.params["list"].append("mine")
        ctx.params["more"] = 1
        return 1

    declare(step(name="a")(careless), step(name="b")(careless))
    shop.until(start(params={"list": []}))
    assert seen == [{"list": []}] * 2
