"""A run as lines and as JSON: statuses, order, sums, and a number of queries that does not grow."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from agentruns.models import Body, Run, Step, Wait
from agentruns.models.portrait import StepLine, iso, portrait, steps, usd
from agentruns.plan import plans
from tests import plans_for_tests as hands

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def plan_two(settings):
    settings.AGENTRUNS_PLANS = ["tests.plans_for_tests"]
    plans.forget()
    yield
    plans.forget()


def lines(run: Run) -> dict[str, StepLine]:
    return {line.path: line for line in steps(Run.objects.get(pk=run.pk))}


def statuses(run: Run) -> dict[str, str]:
    return {path: line.status for path, line in lines(run).items()}


def test_a_run_that_nobody_has_claimed_shows_its_whole_plan_to_come():
    run = Run.start("two", "A task", model="demo")
    assert statuses(run) == {"first": "to_come", "second": "to_come"}
    assert [line.attempts for line in steps(run)] == [0, 0]


def test_a_claimed_step_is_running_with_its_first_attempt():
    run = hands.claimed()
    assert statuses(run) == {"first": "running", "second": "to_come"}
    assert lines(run)["first"].attempts == 1


def test_a_call_in_flight_is_a_running_line_under_its_step():
    run = hands.claimed()
    hands.call_at(run, "first/ask")
    assert statuses(run) == {"first": "running", "first/ask": "running", "second": "to_come"}
    assert lines(run)["first/ask"].kind == "ask"


def test_a_run_parked_for_its_model_waits_in_both_lines_and_says_for_what():
    run = hands.claimed()
    hands.call_at(run, "first/ask")
    hands.parked(run, "model", "first/ask")
    assert statuses(run) == {"first": "waiting", "first/ask": "waiting", "second": "to_come"}
    assert lines(run)["first"].waiting == lines(run)["first/ask"].waiting == "the model's answer"


def test_a_step_begun_by_a_run_that_is_due_again_waits_for_a_worker():
    run = hands.claimed()
    call = hands.call_at(run, "first/ask")
    hands.parked(run, "model", "first/ask")
    hands.settled(call)
    assert Run.objects.get(pk=run.pk).status == "queued"
    assert statuses(run) == {"first": "waiting", "first/ask": "finished", "second": "to_come"}
    assert lines(run)["first"].waiting == "a worker"


def test_a_finished_step_has_the_cost_and_tokens_of_what_is_under_it():
    run = hands.claimed()
    hands.settled(hands.call_at(run, "first/part:a/ask"), cost="0.0025")
    hands.settled(hands.call_at(run, "first/part:b/ask"), cost="0.0005")
    hands.checkpointed(run, "word", "second", hands.row_of(run, "first/part:a", "x", "part"))
    found = lines(run)
    assert found["first"].cost == Decimal("0.003")
    assert found["first/part:a"].cost == Decimal("0.0025")
    assert found["first"].tokens == {"input": 200, "cached": 80, "output": 40, "reasoning": 10}
    assert found["first"].finished_at and found["first"].started_at <= found["first"].finished_at
    assert statuses(run)["second"] == "running"


def test_lines_under_a_step_stand_in_the_order_of_their_first_start_each_with_its_own():
    run = hands.claimed()
    for path in ("first/part:z/ask", "first/part:a/ask", "first/part:z/later"):
        hands.settled(hands.call_at(run, path))
    found = [(line.path, line.depth, line.title) for line in steps(Run.objects.get(pk=run.pk))]
    assert found == [
        ("first", 0, "First"),
        ("first/part:z", 1, "z"),
        ("first/part:z/ask", 2, "Ask"),
        ("first/part:z/later", 2, "Later"),
        ("first/part:a", 1, "a"),
        ("first/part:a/ask", 2, "Ask"),
        ("second", 0, "Second"),
    ]


def test_a_part_at_work_runs_while_its_call_is_in_flight():
    run = hands.claimed()
    hands.settled(hands.call_at(run, "first/part:a/ask"))
    hands.call_at(run, "first/part:b/ask")
    found = statuses(run)
    assert found["first/part:b"] == found["first/part:b/ask"] == "running"
    assert found["first/part:a/ask"] == "finished"


def test_a_failed_run_shows_its_step_failed_with_the_error_and_the_rest_to_come():
    run = hands.claimed()
    hands.settled(hands.call_at(run, "first/ask"), state="failed", error="400 bad request")
    hands.failed(run, "ModelError: 400 bad request")
    assert statuses(run) == {"first": "failed", "first/ask": "failed", "second": "to_come"}
    assert lines(run)["first"].error == "ModelError: 400 bad request"
    assert lines(run)["first/ask"].error == "400 bad request"


def test_a_step_that_waits_for_its_next_try_tells_the_last_error():
    run = hands.claimed()
    run = hands.parked(
        run, "retry", "first", outcome="failed", error="OSError: disk", until=timezone.now() + timedelta(1)
    )
    line = lines(run)["first"]
    assert (line.status, line.waiting, line.error) == ("waiting", "its next try", "OSError: disk")
    assert (line.attempts, line.setbacks) == (1, 1)


def test_a_cancelled_run_shows_the_step_it_was_at_cancelled():
    run = Run.start("two", "A task", model="demo")
    assert run.cancel()
    assert statuses(run) == {"first": "cancelled", "second": "to_come"}


def test_an_interrupted_attempt_counts_and_so_does_the_one_after_it():
    run = hands.claimed()
    assert run.rescue("crash", dead_worker="worker-1")
    hands.claimed(run)
    assert (lines(run)["first"].attempts, lines(run)["first"].setbacks) == (2, 1)


def test_a_step_that_the_plan_lost_stays_before_what_is_to_come():
    run = hands.claimed()
    Run.objects.filter(pk=run.pk).update(at_path="removed")
    run.at_path = "removed"
    hands.checkpointed(run, "kept", "first")
    assert list(statuses(run).items()) == [("removed", "finished"), ("first", "running"), ("second", "to_come")]


def test_a_run_goes_on_under_the_alias_that_it_began():
    run = hands.claimed()
    run = hands.checkpointed(run, "word", "old_second")
    assert statuses(run) == {"first": "finished", "old_second": "running"}
    assert lines(run)["old_second"].title == "Second"


def test_a_completed_run_has_no_step_to_come_that_its_plan_gained_since():
    run = hands.claimed()
    run = hands.checkpointed(run, "word", None)
    assert statuses(run) == {"first": "finished"}


def test_a_run_whose_plan_is_gone_still_shows_what_was_done():
    run = hands.claimed()
    hands.checkpointed(run, "word", "second")
    Run.objects.filter(pk=run.pk).update(plan="gone")
    assert statuses(run) == {"first": "finished", "second": "running"}


def test_missing_labels_read_as_external():
    run = hands.claimed()
    hands.checkpointed(run, "word", None)
    Step.objects.filter(run=run).update(labels="not json")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE agentruns_step SET labels = 'not json'")
    assert lines(run)["first"].labels == ["external"]


def queries_of(run: Run, take: Any) -> int:
    count = 0

    def counted(execute: Any, *args: Any) -> Any:
        nonlocal count
        count += 1
        return execute(*args)

    found = Run.objects.select_related("owner").get(pk=run.pk)
    with connection.execute_wrapper(counted):
        take(found)
    return count


def test_the_number_of_queries_does_not_grow_with_the_number_of_steps():
    run = hands.claimed()
    hands.settled(hands.call_at(run, "first/part:0/ask"))
    assert run.rescue("crash", dead_worker="worker-1")
    run = hands.claimed(run)
    few, few_json = queries_of(run, steps), queries_of(run, portrait)
    for number in range(1, 40):
        hands.settled(hands.call_at(run, f"first/part:{number}/ask"))
        large = hands.row_of(run, f"first/part:{number}", None, "part")
        large.output, large.body = Body.keep("x" * 5000 + str(number))
        large.save()
    assert (queries_of(run, steps), queries_of(run, portrait)) == (few, few_json)
    assert few <= 8


KEYS = {
    "run": "id plan task status waiting_for model budget_usd spent_usd reserved_usd unknown_usd kept_usd lost_usd "
    "tokens steps calls attempts waits events interruptions demo",
    "steps": "path status attempts cost_usd output started_at finished_at labels",
    "calls": "path attempt model state response_id cost_usd",
    "attempts": "path number outcome cause worker started_at ended_at error",
    "waits": "path kind until payload",
    "events": "at kind version",
}


def test_the_json_has_the_keys_of_the_contract_and_its_sums_add_up(django_user_model):
    owner = django_user_model.objects.create_user("ada")
    run = hands.claimed(Run.start("two", "A task", model="demo", owner=owner))
    hands.settled(hands.call_at(run, "first/ask"), cost="0.0012")
    run = hands.checkpointed(run, "word", "second", hands.row_of(run, "first/ask", {"text": "word"}, "ask"))
    hands.call_at(run, "second/ask", reserved="0.02")
    run = hands.parked(run, "model", "second/ask", payload={"why": "slow"})
    found = json.loads(json.dumps(portrait(run)))
    assert set(KEYS.pop("run").split()) <= set(found)
    for part, keys in KEYS.items():
        assert found[part] and set(keys.split()) <= set(found[part][0]), part
    assert found["id"] == str(run.pk) and found["demo"] is True and found["owner"] == "ada"
    assert (found["spent_usd"], found["reserved_usd"], found["unknown_usd"]) == ("0.0012", "0.02", "0.00")
    assert [(one["path"], one["status"], one["output"]) for one in found["steps"]] == [
        ("first", "finished", "word"),
        ("first/ask", "finished", {"text": "word"}),
        ("second", "waiting", None),
        ("second/ask", "waiting", None),
    ]
    tops = [one for one in found["steps"] if "/" not in one["path"]]
    assert sum(Decimal(one["cost_usd"]) for one in tops) == Decimal(found["spent_usd"])
    assert found["steps"][0]["started_at"].endswith("Z")
    assert [event["version"] for event in found["events"]] == sorted(event["version"] for event in found["events"])


def test_a_large_output_is_there_and_one_that_retention_deleted_says_so():
    run = hands.claimed()
    row = hands.row_of(run, "first", None)
    row.output, row.body = Body.keep("long " * 1000)
    run.checkpoint([row], hands.ended(run), "second", 1, hands.LEASE, "b")
    assert portrait(Run.objects.get(pk=run.pk))["steps"][0]["output"] == "long " * 1000
    Body.objects.all().delete()
    assert "is gone" in portrait(Run.objects.get(pk=run.pk))["steps"][0]["output"]["corrupt"]


def test_a_stored_text_that_is_no_json_is_shown_and_stops_nothing():
    run = hands.claimed()
    hands.checkpointed(run, "word", None)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE agentruns_step SET output = '{broken'")
    output = portrait(Run.objects.get(pk=run.pk))["steps"][0]["output"]
    assert output["text"] == "{broken" and output["corrupt"]


def test_waits_that_were_closed_are_not_listed():
    run = hands.claimed()
    run = hands.parked(run, "retry", "first", outcome="failed", error="x", until=timezone.now() + timedelta(1))
    run.retry()
    assert portrait(Run.objects.get(pk=run.pk))["waits"] == []
    assert Wait.objects.filter(run=run).count() == 1


def test_money_keeps_every_digit_and_at_least_cents():
    assert [usd(Decimal(one)) for one in ("5", "0.0012000000", "0E-10", "12.3456789012")] == [
        "5.00",
        "0.0012",
        "0.00",
        "12.3456789012",
    ]


def test_times_are_utc():
    assert iso(datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)) == "2026-01-02T03:04:05.678Z"
    assert iso(None) is None
