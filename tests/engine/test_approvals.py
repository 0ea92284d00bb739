"""A person's yes, no and words: to exactly one payload, once, by who may; and the gate in front of effects."""

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission

from agentruns import PermanentError, Rejected, step
from agentruns.errors import Refusal
from agentruns.models import Grant, Run, Wait
from agentruns.models.moment import in_seconds
from tests.engine.hands import at_once


@pytest.fixture
def ada(transactional_db):
    """She may approve."""
    user = get_user_model().objects.create_user("ada")
    user.user_permissions.add(Permission.objects.get(codename="approve_run"))
    return get_user_model().objects.get(pk=user.pk)


@pytest.fixture
def bob(transactional_db):
    return get_user_model().objects.create_user("bob")


@step
def careful(ctx):
    return ctx.approve("go", {"amount": 100})


def test_it_waits_for_a_yes_and_returns_who_and_when(declare, start, shop, ada):
    declare(careful)
    run = shop.until(start(), "waiting", waiting_for="approval")
    wait = run.waits.get(closed_at=None)
    assert (wait.path, wait.payload["arguments"]) == ("careful/go", {"amount": 100})
    run.approve("careful/go", ada)
    shop.until(run)
    said = run.steps.get(path="careful").value()
    grant = run.grants.get()
    assert said == {"by": "ada", "at": grant.at.isoformat()}
    assert grant.consumed_at is not None
    assert run.events.get(kind="approved").by == ada


def test_a_no_raises_rejected_with_its_reason_and_a_retry_asks_anew(declare, start, shop, ada):
    declare(careful)
    run = shop.until(start(), "waiting", waiting_for="approval")
    run.reject("careful/go", ada, "too dear")
    shop.until(run)
    assert (run.status, run.reason) == ("failed", "Rejected: Rejected: too dear")
    run.retry()
    shop.until(run, "waiting", waiting_for="approval")
    run.approve("careful/go", ada)
    shop.until(run)
    assert run.status == "completed"


def test_a_no_that_the_step_caught_is_met_again_at_every_entry(declare, start, shop, ada):
    @step
    def tolerant(ctx):
        try:
            ctx.approve("go", 1)
        except Rejected as no:
            ctx.sleep("then", 0.01)
            return no.reason

    declare(tolerant)
    run = shop.until(start(), "waiting", waiting_for="approval")
    run.reject("tolerant/go", ada, "not today")
    shop.until(run)
    assert run.steps.get(path="tolerant").value() == "not today"


def test_nobody_in_time_is_a_no(declare, start, shop, ada):
    declare(careful)
    run = shop.until(start(), "waiting", waiting_for="approval")
    Wait.objects.filter(run=run).update(until=in_seconds(-1))
    Run.objects.filter(pk=run.pk).update(wake_at=in_seconds(-1))
    with pytest.raises(Refusal, match="may be over"):
        run.approve("careful/go", ada)
    shop.until(run)
    assert run.status == "failed"
    assert "Nobody answered in time" in run.reason
    run.retry()
    shop.until(run, "waiting", waiting_for="approval")


def test_a_payload_that_changed_needs_another_yes(declare, start, shop, ada):
    amounts = [100, 200, 200]

    @step
    def changing(ctx):
        return ctx.approve("go", amounts.pop(0))

    declare(changing)
    run = shop.until(start(), "waiting", waiting_for="approval")
    run.approve("changing/go", ada)
    shop.until(run, "waiting", waiting_for="approval")
    assert run.waits.get(closed_at=None).payload["arguments"] == 200
    run.approve("changing/go", ada)
    shop.until(run)
    assert run.status == "completed"
    assert [grant.consumed_at is not None for grant in run.grants.order_by("pk")] == [False, True]


def test_a_yes_that_is_checkpointed_is_none_to_a_payload_that_changed_since(declare, start, shop, ada):
    payloads = ["a page", "another page"]

    @step(retries=0)
    def changing(ctx):
        said = ctx.approve("post", payloads[0])
        ctx.step("change", lambda: payloads.pop(0))
        raise RuntimeError(f"not with {said['by']}")

    declare(changing)
    run = shop.until(start(), "waiting", waiting_for="approval")
    run.approve("changing/post", ada)
    assert "not with ada" in shop.until(run).reason
    run.retry()
    assert "was approved in this run with another payload" in shop.until(run).reason


def test_who_looked_at_another_payload_approves_nothing(declare, start, shop, ada):
    declare(careful)
    run = shop.until(start(), "waiting", waiting_for="approval")
    with pytest.raises(Refusal, match="changed since you looked"):
        run.approve("careful/go", ada, sha256="0" * 64)
    assert not run.grants.exists()


@pytest.mark.parametrize("verb", [
    lambda run, by: run.approve("careful/go", by),
    lambda run, by: run.reject("careful/go", by, "no"),
])  # fmt: skip
def test_who_may_not_and_nobody_are_refused(declare, start, shop, bob, verb):
    declare(careful)
    run = shop.until(start(), "waiting", waiting_for="approval")
    for who in (bob, None):
        with pytest.raises(Refusal, match="approve_run"):
            verb(run, who)
    assert not run.grants.exists()


def test_fifty_at_once_give_one_yes(declare, start, shop, ada):
    declare(careful)
    run = shop.until(start(), "waiting", waiting_for="approval")
    results = at_once(50, lambda _: Run.objects.get(pk=run.pk).approve("careful/go", ada))
    assert results.count(None) == 1, [one for one in results if not isinstance(one, Refusal)]
    assert run.grants.count() == 1


def test_a_yes_that_is_given_while_the_worker_parks_is_not_lost(declare, start, shop, ada):
    """The run was woken by something else, and finds the same wait again."""
    declare(careful)
    run = shop.until(start(), "waiting", waiting_for="approval")
    Run.objects.get(pk=run.pk).wake()
    held = shop.claim()
    run.approve("careful/go", ada)
    assert Wait.objects.get(run=run).closed_at is not None
    again = Wait(path="careful/go", kind="approval", payload={}, payload_sha256=run.grants.get().arguments_sha256)
    held.park([again], None)
    run.refresh_from_db()
    assert run.status == "queued"
    shop.until(run)
    assert run.status == "completed"


def test_a_question_is_answered_in_words(declare, start, shop, ada):
    @step
    def unsure(ctx):
        return ctx.question("which", "Which one?").upper()

    declare(unsure)
    run = shop.until(start(), "waiting", waiting_for="operator")
    assert run.waits.get(closed_at=None).payload["arguments"] == "Which one?"
    with pytest.raises(Refusal, match="between 1 and"):
        run.answer("unsure/which", "  ", ada)
    run.answer("unsure/which", "the blue one", ada)
    shop.until(run)
    assert run.steps.get(path="unsure").value() == "THE BLUE ONE"
    assert run.steps.get(path="unsure").labels == ["user"]


# --- the gate ---------------------------------------------------------------------------------------------------------


def test_a_question_that_changed_since_it_was_answered_is_not_asked_again_and_not_hidden(declare, start, shop, ada):
    prompts = ["How many?"]

    @step(retries=0)
    def unsure(ctx):
        answer = ctx.question("count", prompts[-1])
        if len(prompts) == 1:
            raise RuntimeError("after the answer")
        return answer

    declare(unsure)
    run = shop.until(start(), "waiting", waiting_for="operator")
    run.answer("unsure/count", "three", ada)
    shop.until(run)
    prompts.append("How many are there?")
    run.retry()
    assert shop.until(run).steps.get(path="unsure").value() == "three"
    assert [event.path for event in run.events.filter(kind="diverged")] == ["unsure/count"]


def publishing(sent, text="a page"):
    @step
    def publish(ctx):
        page = ctx.external(text, source="https://example.org")
        return ctx.effect("post", post_of(sent), page)

    return publish


def post_of(sent):
    def post(page, key):
        sent.append((page, key))
        return "posted"

    return post


def test_an_effect_reached_by_what_came_from_outside_needs_a_yes_to_its_exact_arguments(declare, start, shop, ada):
    sent = []
    declare(publishing(sent))
    run = shop.until(start(), "waiting", waiting_for="approval")
    wait = run.waits.get(closed_at=None)
    assert (wait.path, wait.payload["arguments"], wait.payload["labels"]) == ("publish/post", ["a page"], ["external"])
    assert wait.payload["effect"].endswith("post_of.<locals>.post")
    assert sent == [] and not run.keys.filter(scope="effect").exists()
    run.approve("publish/post", ada)
    shop.until(run)
    assert sent == [("a page", f"{run.pk}:publish")]
    assert run.grants.get().consumed_at is not None


def test_an_effect_that_nothing_from_outside_reached_needs_none(declare, start, shop):
    sent = []

    @step
    def publish(ctx):
        return ctx.effect("post", post_of(sent), ctx.task)

    declare(publish)
    run = shop.until(start("Hello"))
    assert [page for page, _ in sent] == ["Hello"]
    assert not run.grants.exists()


def test_what_came_from_outside_reaches_an_effect_through_a_later_step_too(declare, start, shop):
    @step
    def fetch(ctx):
        return ctx.external("a page", source="web")

    @step
    def publish(ctx):
        return ctx.effect("post", post_of([]), ctx.prior["fetch"])

    declare(fetch, publish)
    shop.until(start(), "waiting", waiting_for="approval")


def test_a_rejected_effect_is_never_sent(declare, start, shop, ada):
    sent = []
    declare(publishing(sent))
    run = shop.until(start(), "waiting", waiting_for="approval")
    run.reject("publish/post", ada, "spam")
    shop.until(run)
    assert (run.status, sent) == ("failed", [])


def test_a_grant_that_is_too_old_is_not_used(declare, start, shop, ada):
    sent = []
    declare(publishing(sent))
    run = shop.until(start(), "waiting", waiting_for="approval")
    run.approve("publish/post", ada)
    Grant.objects.update(until=in_seconds(-1))
    shop.until(run, "waiting", waiting_for="approval")
    assert sent == []


def test_a_repeat_under_its_key_needs_no_second_yes(declare, start, shop, ada, monkeypatch):
    monkeypatch.setattr("agentruns.outcome.FIRST_PAUSE_SECONDS", 0.01)
    calls = []

    def flaky(page, key):
        calls.append(key)
        if len(calls) == 1:
            raise ConnectionError("no answer")

    @step
    def publish(ctx):
        return ctx.effect("post", flaky, ctx.external("a page", source="web"))

    declare(publish)
    run = shop.until(start(), "waiting", waiting_for="approval")
    run.approve("publish/post", ada)
    shop.until(run)
    assert run.status == "completed"
    assert calls == [f"{run.pk}:publish"] * 2


def test_a_next_generation_of_the_key_needs_a_yes_of_its_own(declare, start, shop, ada):
    script = [PermanentError("card declined"), None]

    def charge(amount, key):
        if (turn := script.pop(0)) is not None:
            raise turn

    @step
    def pay(ctx):
        return ctx.effect("charge", charge, ctx.external(5, source="mail"))

    declare(pay)
    run = shop.until(start(), "waiting", waiting_for="approval")
    run.approve("pay/charge", ada)
    shop.until(run, "failed")
    run.retry()
    shop.until(run, "waiting", waiting_for="approval")
    run.approve("pay/charge", ada)
    shop.until(run)
    assert run.status == "completed"
    assert list(run.keys.filter(scope="effect").order_by("pk").values_list("key", flat=True)) == [
        f"{run.pk}:pay",
        f"{run.pk}:pay~2",
    ]


def test_a_fork_asks_before_it_does_again_what_its_origin_did(declare, start, shop, ada):
    sent = []

    @step
    def publish(ctx):
        return ctx.effect("post", post_of(sent), ctx.task)

    declare(publish)
    origin = shop.until(start("Hello"))
    assert len(sent) == 1
    fork = shop.until(origin.fork("publish"), "waiting", waiting_for="approval")
    assert len(sent) == 1
    again = shop.until(fork.fork("publish"), "waiting", waiting_for="approval")
    assert again.waits.get(closed_at=None).payload["arguments"] == ["Hello"]
    fork.approve("publish/post", ada)
    shop.until(fork)
    assert [key for _, key in sent] == [f"{origin.pk}:publish", f"{fork.pk}:publish"]
