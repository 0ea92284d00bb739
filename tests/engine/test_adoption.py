"""A call whose worker died before its id was stored: a webhook brings the id, and nothing is paid twice."""

from typing import Any

import pytest

from agentruns import llm
from agentruns.models import Call, IdempotencyKey, Run, Wait, announced
from agentruns.models.ledger import lose, submitted
from agentruns.models.moment import in_seconds, now
from agentruns.web.why import why
from tests.engine.hands import at_once, call_of
from tests.engine.money import ASK, calls, check_bill, check_books, generations, posts, states, tick_until
from tests.engine.test_asks import asking
from tests.webhooks import SECRET, stored

MODEL_ANSWERED, SENT = "agentruns.sending.Sending.book", "agentruns.sending.Sending.send"


@pytest.fixture(autouse=True)
def secret(settings: Any) -> None:
    settings.OPENAI_WEBHOOK_SECRET = SECRET


def announce(response_id: str, event_id: str = "wh_1") -> None:
    assert announced.keep(event_id, "response.completed", response_id)


def age_events(seconds: float) -> None:
    IdempotencyKey.objects.filter(scope="webhook").update(created_at=in_seconds(-seconds))


def over(run: Any) -> None:
    """The time of what the run waits for has come."""
    Wait.objects.filter(run=run, closed_at=None).update(until=in_seconds(-1))
    Run.objects.filter(pk=run.pk).update(wake_at=in_seconds(-1))


@pytest.fixture
def orphan(declare, start, shop, provider, deaths):
    """A run whose worker died between the POST and the id; the provider has generated and billed the call."""
    declare(asking())
    run = start()
    deaths.at(MODEL_ANSWERED, run)
    provider.ended(generations(provider, run)[0]["id"])
    return run


def test_a_call_that_lost_its_worker_is_adopted_and_billed_once(orphan, shop, provider):
    shop.until(orphan, "waiting", waiting_for="model")
    assert states(orphan) == ["unknown"]
    announce(generations(provider, orphan)[0]["id"])
    shop.until(orphan)
    assert orphan.status == "completed"
    assert states(orphan) == ["completed"]
    assert len(posts(provider, orphan)) == 1
    assert orphan.events.filter(kind="call_adopted").count() == 1
    assert stored() == {"wh_1": "done"}
    check_bill(provider, orphan)


def test_a_webhook_that_comes_before_the_run_is_entered_again_needs_no_wait(orphan, shop, provider):
    announce(generations(provider, orphan)[0]["id"])
    shop.tick()
    assert states(orphan) == ["completed"], "the intent, too, may be adopted: whoever comes first knows"
    shop.until(orphan)
    assert len(posts(provider, orphan)) == 1
    assert not Wait.objects.filter(run=orphan).exists()
    check_bill(provider, orphan)


def test_without_a_webhook_it_is_asked_again_when_the_time_is_over(orphan, shop, provider, settings):
    settings.AGENT_UNKNOWN_SECONDS = 1
    shop.until(orphan, "waiting", waiting_for="model")
    assert len(posts(provider, orphan)) == 1
    shop.until(orphan)
    first, second = calls(orphan)
    assert (first.state, second.state, second.maybe_twice) == ("unknown", "completed", True)
    assert first.key == second.key
    assert Wait.objects.filter(run=orphan, payload__isnull=False).count() == 1
    check_books(orphan)


def test_the_run_says_why_and_until_when_it_waits(orphan, shop, settings):
    shop.until(orphan, "waiting", waiting_for="model")
    assert Wait.objects.filter(run=orphan, closed_at=None, until__gt=in_seconds(60)).count() == 1
    said = why(orphan)
    assert said is not None
    assert "Nobody knows whether the call" in said.rest
    assert said.until == orphan.wake_at


@pytest.mark.parametrize("reason", ["no secret", "no background"])
def test_what_no_webhook_can_bring_is_not_waited_for(reason, declare, start, shop, provider, settings, deaths):
    if reason == "no secret":
        settings.OPENAI_WEBHOOK_SECRET = ""
    else:
        settings.AGENT_BACKGROUND = "off"
    declare(asking())
    run = start()
    deaths.at(SENT, run)
    shop.until(run)
    assert states(run) == ["unknown", "completed"]
    assert not Wait.objects.filter(run=run, until__isnull=False).exists()


def test_a_webhook_after_the_second_try_settles_the_first_and_both_are_booked(orphan, shop, provider, settings):
    settings.AGENT_UNKNOWN_SECONDS = 0.1
    shop.until(orphan)
    assert states(orphan) == ["unknown", "completed"]
    announce(generations(provider, orphan)[0]["id"])
    tick_until(shop, orphan, "completed", "completed")
    assert len(generations(provider, orphan)) == 2
    check_bill(provider, orphan)


def test_what_wakes_the_run_for_something_else_does_not_begin_the_wait_anew_or_end_it(orphan, shop, provider):
    shop.until(orphan, "waiting", waiting_for="model")
    until = Wait.objects.get(run=orphan).until
    for _ in range(3):
        Wait.objects.filter(run=orphan).update(closed_at=now())  # as the settling of another call of the run does
        assert orphan.wake()
        shop.turn()
        orphan.refresh_from_db()
        assert (orphan.status, orphan.waiting_for, orphan.wake_at) == ("waiting", "model", until)
    assert len(posts(provider, orphan)) == 1


def test_an_answer_that_is_booked_while_the_worker_parks_wakes_the_run_at_once(orphan, shop, provider, monkeypatch):
    """Between its look at the unknown call and its park the clock books the answer: no wake may be lost."""
    park = Run.park

    def later(run, *args, **options):
        announce(generations(provider, orphan)[0]["id"])
        shop.tick()
        assert states(orphan) == ["completed"]
        return park(run, *args, **options)

    monkeypatch.setattr(Run, "park", later)
    shop.turn()
    monkeypatch.undo()
    orphan.refresh_from_db()
    assert orphan.status != "waiting"


def test_a_persons_word_to_send_it_again_ends_the_wait(orphan, shop, provider):
    shop.until(orphan, "waiting", waiting_for="model")
    orphan.settle(ASK, "again")
    orphan.refresh_from_db()
    assert orphan.status == "queued"
    shop.until(orphan)
    assert states(orphan) == ["unknown", "completed"]


# --- whose it is ------------------------------------------------------------------------------------------------------


def test_an_event_that_is_faster_than_the_id_changes_nothing(declare, start, shop, provider, monkeypatch):
    submit, told = llm.Provider.submit, []

    def told_first(self, *args, **options):
        reply = submit(self, *args, **options)
        announce(reply.response_id)
        shop.tick()
        told.append(states(run))
        return reply

    monkeypatch.setattr(llm.Provider, "submit", told_first)
    declare(asking())
    run = start()
    shop.until(run)
    assert (run.status, len(told)) == ("completed", 1)
    assert told[0] != ["intent"], "the clock was first"
    assert states(run) == ["completed"]
    assert len(posts(provider, run)) == 1
    assert not run.events.filter(kind="call_adopted").exists()
    check_bill(provider, run)


def test_while_a_second_try_is_being_sent_nobody_guesses_whose_a_response_is(orphan, shop, provider, settings):
    shop.until(orphan, "waiting", waiting_for="model")
    first = calls(orphan)[0]
    over(orphan)
    shop.tick()
    second = shop.claim().intend(twin_of(first))
    announce(generations(provider, orphan)[0]["id"])
    shop.tick()
    assert states(orphan) == ["unknown", "intent"]
    assert stored() == {"wh_1": "intent"}
    assert submitted(second, provider.answer("?").id)
    age_events(60)
    shop.tick()
    assert calls(orphan)[0].response_id == generations(provider, orphan)[0]["id"]
    assert stored() == {"wh_1": "done"}


def test_of_two_lost_tries_each_response_goes_to_one(orphan, shop, provider):
    shop.until(orphan, "waiting", waiting_for="model")
    first = calls(orphan)[0]
    over(orphan)
    shop.tick()
    held = shop.claim()
    assert lose(held.intend(twin_of(first)), "the worker ended")
    again = provider.answer("What is a buoy?", metadata={"run": str(orphan.pk), "path": ASK, "ask": "1"})
    mine = [generations(provider, orphan)[0]["id"], again.id]
    for number, response_id in enumerate([*mine, *mine]):
        announce(response_id, f"wh_{number}")
    at_once(4, lambda _: shop.tick())
    age_events(60)
    shop.tick()
    assert {one.response_id for one in calls(orphan)} == set(mine)
    assert states(orphan) == ["completed", "completed"]
    assert set(stored().values()) == {"done"}


def twin_of(call: Call) -> Call:
    """A second try of the same ask, not written yet."""
    twin = call_of(call.run, call.path)
    twin.ask, twin.provider, twin.provider_key, twin.background = call.ask, call.provider, call.provider_key, True
    return twin


STRANGERS = {
    "nothing": {},
    "another product's": {"user": "7"},
    "a run that is none": {"run": "7", "path": ASK},
    "a run of another installation": {"run": "00000000-0000-4000-8000-000000000000", "path": ASK},
    "another path": {"run": "{run}", "path": "work/else"},
    "another ask": {"run": "{run}", "path": ASK, "ask": "2"},
    "an ask that is none": {"run": "{run}", "path": ASK, "ask": "first"},
}


@pytest.mark.parametrize("metadata", STRANGERS.values(), ids=STRANGERS)
def test_a_response_of_somebody_else_is_nobodys_here(metadata, orphan, shop, provider):
    shop.until(orphan, "waiting", waiting_for="model")
    said = {name: value.replace("{run}", str(orphan.pk)) for name, value in metadata.items()}
    announce(provider.answer("What is a buoy?", metadata=said).id)
    shop.tick()
    assert states(orphan) == ["unknown"]
    assert stored() == {"wh_1": "failed"}


@pytest.mark.parametrize("field", ["provider", "provider_key"])
def test_a_call_made_elsewhere_is_not_given_a_response_from_here(field, orphan, shop, provider):
    shop.until(orphan, "waiting", waiting_for="model")
    Call.objects.filter(run=orphan).update(**{field: "other"})
    announce(generations(provider, orphan)[0]["id"])
    shop.tick()
    assert states(orphan) == ["unknown"]


def test_a_settled_call_is_not_given_another_response(declare, start, shop, provider):
    declare(asking())
    run = start()
    shop.until(run)
    before = Call.objects.filter(run=run).values().get()
    announce(provider.answer("What is a buoy?", metadata={"run": str(run.pk), "path": ASK, "ask": "1"}).id)
    shop.tick()
    assert Call.objects.filter(run=run).values().get() == before
    assert stored() == {"wh_1": "failed"}


# --- events that wait -------------------------------------------------------------------------------------------------


def test_a_response_that_cannot_be_retrieved_is_looked_at_again_ever_more_seldom_for_a_day(shop, monkeypatch):
    looks = []

    async def gone(self, ids):
        looks.extend(ids)
        return {one: llm.ProviderBusy("away") for one in ids}

    monkeypatch.setattr(llm.Provider, "retrieve_many", gone)
    announce("resp_away")
    for age in (0, 0, 2, 2, 4, 80_000, 80_000):
        age_events(age)
        shop.tick()
    assert len(looks) == 5
    age_events(86_401)
    shop.tick()
    assert stored() == {"wh_1": "failed"}
    age_events(7 * 86_400 + 1)
    shop.tick()
    assert stored() == {}
    assert len(looks) <= 6


def test_one_response_that_cannot_be_adopted_keeps_no_other_from_it(orphan, shop, provider, monkeypatch):
    shop.until(orphan, "waiting", waiting_for="model")
    adopted = announced.adopted

    def poisoned(response_id, *args):
        if "bad" in args[0]:
            raise RuntimeError("no idea")
        return adopted(response_id, *args)

    monkeypatch.setattr(announced, "adopted", poisoned)
    announce(provider.answer("?", metadata={"bad": "bad"}).id, "wh_1")
    announce(generations(provider, orphan)[0]["id"], "wh_2")
    shop.tick()
    assert stored() == {"wh_1": "intent", "wh_2": "done"}
