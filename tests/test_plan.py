"""What an author may declare: names, aliases, retries, timeouts, budgets; each mistake is an error with its remedy."""

import re
from decimal import Decimal

import pytest

from agentruns import Plan, PlanError, step
from agentruns.errors import UnknownPlan
from agentruns.plan import Registry, plans


def named(name, **options):
    return step(name=name, **options)(lambda ctx: None)


@pytest.mark.parametrize("name", ["a", "A1", "x" * 64, "two_words", "v1.2-final", "0"])
def test_names_are_letters_digits_dot_underscore_hyphen(name):
    assert named(name).name == name
    assert Plan(name, [named("a")]).name == name


@pytest.mark.parametrize(
    "name", ["", " ", "x" * 65, "-a", ".a", "_a", "a b", "a/b", "a:b", "ä", "a\n", "a\0", "<lambda>", "~", 7, ("a",)]
)
def test_other_names_are_refused_with_the_rule(name):
    rule = "1 to 64 letters, digits"
    with pytest.raises(PlanError, match=rule):
        named(name)
    with pytest.raises(PlanError, match=rule):
        Plan(name, [named("a")])
    with pytest.raises(PlanError, match=rule):
        named("a", aliases=[name])


def test_a_plain_function_is_a_step_by_its_own_name_and_a_lambda_has_none():
    def plain(ctx):
        """Does it plainly.

        More.
        """

    plan = Plan("p", [plain])
    assert (plan.names, plan.steps[0].title, plan.steps[0].about) == (["plain"], "Plain", "Does it plainly.")
    with pytest.raises(PlanError, match="'<lambda>' is no name"):
        Plan("p", [lambda ctx: None])


def test_two_steps_of_one_name_are_refused():
    with pytest.raises(PlanError, match=re.escape("two steps called 'a': give one of them @step(name=…)")):
        Plan("p", [named("a"), named("b"), named("a")])


def test_a_plan_without_steps_is_refused():
    with pytest.raises(PlanError, match="has no steps"):
        Plan("p", [])


def test_an_alias_that_a_living_step_is_called_is_refused():
    with pytest.raises(PlanError, match="the alias 'b' is the name of another step that it still has"):
        Plan("p", [named("a", aliases=["b"]), named("b")])


def test_an_alias_that_two_steps_claim_is_refused():
    with pytest.raises(PlanError, match="two steps claim the alias 'old'"):
        Plan("p", [named("a", aliases=["old"]), named("b", aliases=["old"])])


def test_aliases_written_as_one_text_are_not_taken_for_letters():
    with pytest.raises(PlanError, match=re.escape("aliases=['write']")):
        named("draft", aliases="write")


def test_a_plan_knows_its_steps_by_all_their_names():
    plan = Plan("p", [named("draft", aliases=["write", "compose"]), named("b")])
    assert [plan.knows(name) for name in ("draft", "write", "compose", "b", "c", "")] == [True] * 4 + [False] * 2


@pytest.mark.parametrize("retries", [-1, 1.5, "3", None])
def test_retries_are_a_whole_number(retries):
    with pytest.raises(PlanError, match="give a whole number, 0 or more"):
        named("a", retries=retries)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), 10**6, "900", None])
def test_a_timeout_is_a_number_of_seconds(timeout):
    with pytest.raises(PlanError, match="give a number of seconds above 0"):
        named("a", timeout=timeout)


def test_what_is_not_said_has_its_default():
    one = step(lambda_free)
    assert (one.retries, one.timeout, one.aliases) == (3, 900.0, ())
    plan = Plan("two_words", [one])
    assert (plan.title, plan.budget, plan.description) == ("Two words", None, "")


def lambda_free(ctx):
    return None


@pytest.mark.parametrize("budget", ["0", "-5", "abc", "NaN", "Infinity", [], 0])
def test_a_budget_is_an_amount_above_zero(budget):
    with pytest.raises(PlanError, match="give an amount in USD above 0"):
        Plan("p", [named("a")], budget=budget)


def test_a_budget_is_kept_exactly():
    assert Plan("p", [named("a")], budget="5.00").budget == Decimal("5.00")


def test_a_plan_is_a_value_that_nobody_changes():
    plan = Plan("p", [named("a")])
    with pytest.raises(AttributeError):
        plan.name = "q"  # type: ignore[misc]


def test_the_shipped_plan_is_found_and_an_unknown_one_names_those_there_are():
    assert plans.get("report").name == "report"
    with pytest.raises(UnknownPlan, match=r"no plan called 'nope'. Plans here: .*report"):
        plans.get("nope")


def test_plans_are_loaded_from_the_modules_that_the_setting_names(settings):
    settings.AGENTRUNS_PLANS = ["tests.engine.stubborn_plans"]
    assert set(Registry().all()) >= {"report", "stubborn"}


def test_a_module_that_is_not_there_is_an_error_that_names_it(settings):
    settings.AGENTRUNS_PLANS = ["tests.no_such_plans"]
    with pytest.raises(PlanError, match=r"AGENTRUNS_PLANS names 'tests.no_such_plans', but there is no such module"):
        Registry().all()


def test_two_plans_of_one_name_are_refused(settings, monkeypatch):
    from tests.engine import stubborn_plans

    monkeypatch.setattr(stubborn_plans, "other", Plan("report", [named("a")]), raising=False)
    settings.AGENTRUNS_PLANS = ["tests.engine.stubborn_plans"]
    with pytest.raises(PlanError, match="Two plans are called 'report'"):
        Registry().all()
