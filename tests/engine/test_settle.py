"""What only a person can know, and what the run makes of it."""

import pytest

from agentruns import step
from agentruns.errors import Refusal


@pytest.fixture
def waiting(declare, start, shop):
    """A run that waits for a person's word on its effect, and the calls that were made."""
    calls = []

    def send(word, key):
        calls.append(key)
        if len(calls) == 1:
            raise ConnectionError("cut off")
        return "sent"

    @step
    def publish(ctx):
        return ctx.effect("post", send, "x", on_unknown="ask")

    declare(publish)
    run = shop.until(start(), "waiting", waiting_for="effect")
    return run, calls


def test_done_takes_the_persons_answer_and_sends_nothing(waiting, shop, admin_user):
    run, calls = waiting
    run.settle("publish/post", "done", {"id": 7}, by=admin_user)
    shop.until(run)
    assert run.steps.get(path="publish").value() == {"id": 7}
    assert len(calls) == 1
    assert run.events.get(kind="settled").by == admin_user


@pytest.mark.parametrize("word", ["not-done", "again"])
def test_not_done_and_again_send_it_once_more_under_the_same_key(waiting, shop, word):
    run, calls = waiting
    run.settle("publish/post", word)
    shop.until(run)
    assert run.status == "completed"
    assert calls == [f"{run.pk}:publish"] * 2


def test_what_is_known_cannot_be_settled(waiting, shop):
    run, _ = waiting
    run.settle("publish/post", "done", "sent")
    shop.until(run)
    with pytest.raises(Refusal, match="nothing to settle"):
        run.settle("publish/post", "again")
