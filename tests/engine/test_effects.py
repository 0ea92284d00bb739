"""Outside effects: the key is committed before the call, and no repeat has another key or other bytes."""

import pytest

from agentruns import PermanentError, RetryLater, step
from agentruns.models import IdempotencyKey


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("agentruns.outcome.FIRST_PAUSE_SECONDS", 0.01)


@pytest.fixture
def outside():
    return Outside()


class Outside:
    """Stands for an API: notes each call, and does what it was told to, in turn."""

    def __init__(self):
        self.calls, self.script = [], []

    def __call__(self, *args, key):
        row = IdempotencyKey.objects.get(scope="effect", key=key)
        self.calls.append((list(args), key, row.state))
        turn = self.script.pop(0) if self.script else "sent"
        if isinstance(turn, BaseException):
            raise turn
        return turn


def plan_of(outside, **options):
    @step(retries=2)
    def publish(ctx):
        return ctx.effect("post", outside, ctx.task, **options)

    return publish


def test_the_intent_is_committed_before_the_call_and_its_answer_is_the_steps(declare, start, shop, outside):
    declare(plan_of(outside))
    run = shop.until(start("Hello"))
    assert outside.calls == [(["Hello"], f"{run.pk}:publish", "intent")]
    assert run.steps.get(path="publish").value() == "sent"
    assert run.keys.get(scope="effect").state == "done"


def test_an_unknown_outcome_is_repeated_with_the_same_key_and_bytes(declare, start, shop, outside):
    outside.script = [ConnectionError("cut off")]
    declare(plan_of(outside))
    run = shop.until(start("Hello"))
    assert run.status == "completed"
    assert [call[:2] for call in outside.calls] == [(["Hello"], f"{run.pk}:publish")] * 2


def test_a_kill_in_the_call_leaves_an_intent_that_the_next_worker_takes_for_unknown(declare, start, shop, outside):
    outside.script = [KeyboardInterrupt()]  # as if the process ended there
    declare(plan_of(outside))
    run = start("Hello")
    with pytest.raises(KeyboardInterrupt):
        shop.turn()
    shop.expire(run)
    assert run.rescue("lease")
    shop.until(run)
    assert [call[1] for call in outside.calls] == [f"{run.pk}:publish"] * 2
    assert run.events.filter(kind="effect_unknown").count() == 1


def test_an_effect_that_is_done_is_not_called_again_when_its_function_fails_after_it(declare, start, shop, outside):
    failures = [RuntimeError("after the effect")]

    @step
    def publish(ctx):
        answer = ctx.effect("post", outside, "x")
        if failures:
            raise failures.pop()
        return answer

    declare(publish)
    assert shop.until(start()).status == "completed"
    assert len(outside.calls) == 1


def test_retry_later_says_that_it_did_not_happen_and_keeps_the_key(declare, start, shop, outside):
    outside.script = [RetryLater(0.01)]
    declare(plan_of(outside))
    run = shop.until(start())
    assert run.status == "completed"
    assert {call[1] for call in outside.calls} == {f"{run.pk}:publish"}


def test_a_persons_retry_of_a_known_failure_opens_the_next_generation_of_the_key(declare, start, shop, outside):
    outside.script = [PermanentError("refused")]
    declare(plan_of(outside))
    run = shop.until(start())
    assert run.status == "failed"
    run.retry()
    shop.until(run)
    assert run.status == "completed"
    assert [call[1] for call in outside.calls] == [f"{run.pk}:publish", f"{run.pk}:publish~2"]


def test_other_arguments_under_a_key_that_may_have_been_used_are_never_sent(declare, start, shop, outside):
    outside.script = [ConnectionError("cut off")]
    words = iter(["first", "second", "third"])

    @step
    def publish(ctx):
        return ctx.effect("post", outside, next(words))

    declare(publish)
    run = shop.until(start(), "waiting", waiting_for="effect")
    assert len(outside.calls) == 1
    assert "other arguments" in run.reason


def test_ask_waits_for_a_person_and_sends_nothing_meanwhile(declare, start, shop, outside):
    outside.script = [ConnectionError("cut off")]
    declare(plan_of(outside, on_unknown="ask"))
    shop.until(start(), "waiting", waiting_for="effect")
    assert len(outside.calls) == 1


def test_a_look_up_that_finds_it_takes_its_answer_and_sends_nothing(declare, start, shop, outside):
    outside.script = [ConnectionError("cut off")]
    declare(plan_of(outside, on_unknown=lambda *args, key: f"found {key}"))
    run = shop.until(start())
    assert len(outside.calls) == 1
    assert run.steps.get(path="publish").value() == f"found {run.pk}:publish"


def test_a_key_that_is_too_old_is_not_repeated(declare, start, shop, outside):
    outside.script = [ConnectionError("cut off")]
    declare(plan_of(outside, key_life=0))
    shop.until(start(), "waiting", waiting_for="effect")
    assert len(outside.calls) == 1


def test_a_function_without_a_key_cannot_be_repeated_and_is_refused(declare, start, shop):
    called = []

    @step
    def publish(ctx):
        return ctx.effect("post", called.append, 1)

    def plain(word):
        called.append(word)

    @step(name="publish")
    def publish_plain(ctx):
        return ctx.effect("post", plain, 1)

    declare(publish_plain)
    run = shop.until(start())
    assert run.status == "failed"
    assert "takes no `key`" in run.reason
    assert called == []


def test_a_second_effect_in_one_function_is_refused(declare, start, shop, outside):
    @step
    def publish(ctx):
        ctx.effect("one", outside, 1)
        ctx.effect("two", outside, 2)

    declare(publish)
    run = shop.until(start())
    assert run.status == "failed"
    assert len(outside.calls) == 1


def test_no_effect_begins_after_a_cancel_was_committed(declare, start, shop, outside):
    @step
    def publish(ctx):
        run.cancel()
        return ctx.effect("post", outside, 1)

    declare(publish)
    run = start()
    shop.until(run)
    assert run.status == "cancelled"
    assert outside.calls == []
