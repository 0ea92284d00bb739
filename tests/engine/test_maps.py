"""`ctx.map`: items by name, all in flight at once, in order, each finished once, failures alone."""

import re
import threading

import pytest
from django.utils.text import slugify

from agentruns import ItemFailed, PermanentError, step
from agentruns.mapping import item_name
from agentruns.models import Call
from tests.engine.money import check_bill, paths_paid


@step
def ask_about(ctx, item):
    return str(ctx.ask(f"What is {item}?", max_output_tokens=1000))


def mapping(items, fn=ask_about, **options):
    @step(retries=2)
    def spread(ctx):
        return ctx.map("part", fn, items, **options)

    return spread


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr("agentruns.outcome.FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr("agentruns.models.waking.FAN_OUT_SECONDS", 0.05)
    monkeypatch.setattr("agentruns.models.progress.FAN_OUT_SECONDS", 0.05)


def test_results_come_in_the_order_of_the_items_and_each_is_a_sub_step_by_its_name(declare, start, shop):
    declare(mapping(["b", "a", "c"], str.upper))
    run = shop.until(start())
    assert run.steps.get(path="spread").value() == ["B", "A", "C"]
    assert set(run.steps.filter(kind="part").values_list("path", flat=True)) == {
        "spread/part:a",
        "spread/part:b",
        "spread/part:c",
    }


def test_all_calls_are_in_flight_at_once_and_the_run_holds_no_process(declare, start, shop, provider, parked, quick):
    provider.fault("slow 60")
    items = [f"thing-{number}" for number in range(12)]
    declare(mapping(items))
    run = shop.until(start(), "waiting", waiting_for="model")
    assert Call.objects.filter(run=run, state="submitted").count() == 12
    assert run.attempts.count() == 1
    assert run.waits.filter(closed_at=None).count() == 12


def test_each_item_is_paid_once_however_often_the_map_is_entered(declare, start, shop, provider, parked, quick):
    items = [f"thing-{number}" for number in range(8)]
    declare(mapping(items))
    run = shop.until(start())
    assert run.status == "completed", run.reason
    assert set(paths_paid(provider, run).values()) == {1}
    assert len(paths_paid(provider, run)) == 8
    check_bill(provider, run)


def test_items_that_only_wait_are_not_entered_again(declare, start, shop, provider, parked, quick):
    provider.fault("slow 60", match="slow-one")
    entered = []

    @step
    def noting(ctx, item):
        entered.append(item)
        return str(ctx.ask(f"What is {item}?"))

    declare(mapping(["slow-one", "quick-one", "other"], noting))
    run = start()
    shop.until(run, "waiting", waiting_for="model")
    while run.steps.filter(kind="part").count() < 2:
        shop.tick()
        shop.turn()
    assert entered.count("slow-one") == 1
    assert entered.count("quick-one") == 2


def test_a_failed_item_is_tried_again_alone(declare, start, shop, quick):
    bodies = []

    def flaky(item):
        bodies.append(item)
        if item == "bad" and bodies.count("bad") < 3:
            raise ValueError("not yet")
        return item

    declare(mapping(["one", "bad", "two"], flaky))
    run = shop.until(start())
    assert run.status == "completed"
    assert (bodies.count("one"), bodies.count("bad"), bodies.count("two")) == (1, 3, 1)


def test_the_first_failure_in_item_order_is_raised_when_nothing_is_open(declare, start, shop, quick):
    def fails(item):
        raise PermanentError(f"no {item}")

    declare(mapping(["one", "two"], fails))
    run = shop.until(start())
    assert run.status == "failed"
    assert "item 'one': PermanentError: no one" in run.reason


def test_an_item_that_fails_does_not_stop_one_that_waits(declare, start, shop, provider, parked, quick):
    @step
    def mixed(ctx, item):
        if item == "bad":
            raise PermanentError("no")
        return str(ctx.ask(f"What is {item}?"))

    declare(mapping(["bad", "good"], mixed))
    run = shop.until(start())
    assert run.status == "failed"
    assert run.steps.filter(path="spread/part:good").exists(), "what waited was finished first"
    assert not run.waits.filter(closed_at=None, kind="model").exists()


def test_a_step_may_catch_the_failure_of_an_item(declare, start, shop):
    def fails(item):
        raise PermanentError("no")

    @step
    def tolerant(ctx):
        try:
            ctx.map("part", fails, ["one"])
        except ItemFailed as failure:
            return [failure.item, str(failure.error)]

    declare(tolerant)
    run = shop.until(start())
    assert run.steps.get(path="tolerant").value() == ["one", "no"]


def test_equal_items_are_one_and_different_ones_of_one_name_an_error(declare, start, shop):
    bodies = []
    declare(mapping(["a", "a", "b"], lambda item: bodies.append(item) or item))
    run = shop.until(start())
    assert run.steps.get(path="spread").value() == ["a", "a", "b"]
    assert sorted(bodies) == ["a", "b"]
    declare(mapping(["a", "b"], str.upper, key=lambda item: "same"))
    run = shop.until(start())
    assert run.status == "failed"
    assert "give them another key" in run.reason


@pytest.mark.parametrize(
    ("item", "key", "name"),
    [
        ("rfc-9110", None, "rfc-9110"),
        ("Big Words", None, r"big-words-[0-9a-f]{8}"),
        ("", None, r"[0-9a-f]{8}"),
        ("../../etc/passwd", None, r"etc-passwd-[0-9a-f]{8}"),
        ("x" * 200, None, r"x{31}-[0-9a-f]{8}"),
        ({"a": 1}, None, r"a-1-[0-9a-f]{8}"),
        ("Big Words", slugify, "big-words"),
        ("ä" * 50, None, r"[0-9a-f]{8}"),
    ],
)
def test_a_name_is_plain_and_what_had_to_be_changed_has_a_hash(item, key, name):
    found = item_name(item, key)
    assert re.fullmatch(name, found)
    assert re.fullmatch(r"[a-z0-9-]{1,40}", found)


def test_functions_run_in_at_most_so_many_threads_each_with_a_connection_of_its_own(declare, start, shop, settings):
    settings.AGENT_THREADS = 3
    now, most, guard = [0], [0], threading.Lock()
    gate = threading.Barrier(3)

    def busy(item):
        with guard:
            now[0] += 1
            most[0] = max(most[0], now[0])
        gate.wait(timeout=10)
        with guard:
            now[0] -= 1
        return item

    declare(mapping([f"i{number}" for number in range(9)], busy))
    run = shop.until(start())
    assert run.status == "completed"
    assert most[0] == 3


def test_labels_of_all_items_are_handed_out(declare, start, shop):
    @step
    def fetch(ctx, item):
        return ctx.external("a page", source="web") if item == "far" else "near"

    declare(mapping(["near", "far"], fetch))
    run = shop.until(start())
    assert run.steps.get(path="spread/part:near").labels == ["trusted"]
    assert run.steps.get(path="spread/part:far").labels == ["external"]
    assert "external" in run.steps.get(path="spread").labels


def test_a_map_in_a_map_and_effects_in_items_with_keys_of_their_own(declare, start, shop, quick):
    keys = []

    def post(item, key):
        keys.append(key)

    @step
    def inner(ctx, item):
        return ctx.effect("post", post, item)

    @step
    def outer(ctx, item):
        return ctx.map("in", inner, [f"{item}1", f"{item}2"])

    declare(mapping(["a", "b"], outer))
    run = shop.until(start())
    assert run.status == "completed"
    assert sorted(keys) == [f"{run.pk}:spread/part:{one}/in:{one}{n}" for one in "ab" for n in (1, 2)]


def test_a_map_whose_worker_died_goes_on_from_the_items_that_are_finished(declare, start, shop, quick):
    bodies = []

    def dies_once(item):
        bodies.append(item)
        if item == "c" and bodies.count("c") == 1:
            raise KeyboardInterrupt
        return item

    declare(mapping(["a", "b", "c"], dies_once))
    run = shop.until(start())
    assert run.status == "completed"
    assert (bodies.count("a"), bodies.count("b")) == (1, 1)


def test_a_map_of_nothing_is_an_empty_list(declare, start, shop):
    declare(mapping([], str.upper))
    assert shop.until(start()).steps.get(path="spread").value() == []
