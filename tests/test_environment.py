"""Readers of the environment: a wrong value keeps the default and leaves a problem with its remedy."""

import os
import subprocess
import sys
from decimal import Decimal

import pytest

from agentruns import environment as env
from tests.system import ROOT


@pytest.fixture(autouse=True)
def problems(monkeypatch):
    monkeypatch.setattr(env, "problems", [])
    return env.problems


@pytest.fixture
def given(monkeypatch):
    def given(value):
        monkeypatch.setenv("SETTING", value)

    return given


READERS = {
    "flag": lambda: env.flag("SETTING", True),
    "choice": lambda: env.choice("SETTING", "auto", ("auto", "on", "off")),
    "whole": lambda: env.whole("SETTING", 4),
    "seconds": lambda: env.seconds("SETTING", 15, least=1),
    "usd": lambda: env.usd("SETTING", Decimal("5.00")),
    "prices": lambda: env.prices("SETTING"),
    "text": lambda: env.text("SETTING", "word"),
    "words": lambda: env.words("SETTING", "a,b"),
}
DEFAULTS = {
    "flag": True, "choice": "auto", "whole": 4, "seconds": 15, "usd": Decimal("5.00"), "prices": None, "text": "word",
    "words": ["a", "b"],
}  # fmt: skip
RIGHT = [
    ("flag", "1", True), ("flag", " Yes ", True), ("flag", "off", False), ("flag", "0", False),
    ("choice", "ON", "on"), ("whole", "12", 12), ("seconds", "2.5", 2.5), ("seconds", "1", 1.0),
    ("usd", "0.01", Decimal("0.01")), ("usd", "12", Decimal(12)),
    ("prices", "10/50", (Decimal(10), Decimal(50), None)),
    ("prices", " 0.5 / 2 / 0.05 ", (Decimal("0.5"), Decimal(2), Decimal("0.05"))), ("prices", "0/0", (0, 0, None)),
    ("text", "  x ", "x"), ("words", " a ,, b,", ["a", "b"]),
]  # fmt: skip
WRONG = [
    *[("flag", value) for value in ("maybe", "2", "none")],
    *[("choice", value) for value in ("always", "1")],
    *[("whole", value) for value in ("0", "-1", "1.5", "abc", "1e3", "²")],
    *[("seconds", value) for value in ("0.5", "-1", "nan", "inf", "1e9", "soon")],
    *[("usd", value) for value in ("0", "-1", "nan", "inf", "$5", "5,00", "1e12", "abc")],
    *[("prices", value) for value in ("10", "10/", "10/50/1/2", "-1/5", "nan/1", "a/b", "1e9/1", "10;50")],
]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("value", [None, "", "  "], ids=["unset", "empty", "blank"])
def test_what_is_not_set_has_its_default_and_is_no_problem(monkeypatch, problems, reader, value):
    if value is None:
        monkeypatch.delenv("SETTING", raising=False)
    else:
        monkeypatch.setenv("SETTING", value)
    assert READERS[reader]() == DEFAULTS[reader]
    assert problems == []


@pytest.mark.parametrize(("reader", "value", "expected"), RIGHT)
def test_a_right_value_is_read(given, problems, reader, value, expected):
    given(value)
    assert READERS[reader]() == expected
    assert problems == []


@pytest.mark.parametrize(("reader", "value"), WRONG)
def test_a_wrong_value_keeps_the_default_and_is_a_problem_with_its_remedy(given, problems, reader, value):
    given(value)
    assert READERS[reader]() == DEFAULTS[reader]
    (problem,) = problems
    assert problem.setting == "SETTING"
    assert problem.message.startswith("SETTING is ") and value in problem.message
    assert "SETTING" in problem.hint


COMBINATIONS = {
    "a key without a model": ({"OPENAI_API_KEY": "sk-x"}, "AGENT_MODEL is not: which model should do the work?"),
    "a base URL without a model": ({"OPENAI_BASE_URL": "http://x/v1"}, "AGENT_MODEL is not"),
    "a model without a provider": ({"AGENT_MODEL": "gpt-5"}, "there is neither OPENAI_API_KEY nor OPENAI_BASE_URL"),
    "a wrong number": ({"AGENT_LEASE_SECONDS": "soon"}, "AGENT_LEASE_SECONDS is 'soon'"),
    "a database that cannot be read": ({"DATABASE_URL": "nonsense://"}, "DATABASE_URL cannot be read"),
}


@pytest.mark.once
@pytest.mark.parametrize(("variables", "said"), COMBINATIONS.values(), ids=COMBINATIONS)
def test_check_says_what_is_wrong_and_is_red(tmp_path, variables, said):
    done = subprocess.run(
        [sys.executable, "manage.py", "check"], cwd=ROOT, text=True, capture_output=True, timeout=60,
        env={**os.environ, "AGENTRUNS_HOME": str(tmp_path), "DATABASE_URL": "", **variables},
    )  # fmt: skip
    assert done.returncode == 1
    assert said in done.stderr
    assert "HINT:" in done.stderr
    assert "Traceback" not in done.stderr
