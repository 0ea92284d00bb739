"""A charge by the official Stripe client, at a localstripe over HTTP: taken once, whoever dies when."""

import pytest
import stripe

from tests.effects import plans
from tests.effects.conftest import DECLINED_CARD, GOOD_CARD, Doomed, Till

pytestmark = [pytest.mark.django_db, pytest.mark.once]
POINTS = ["intent-committed", "effect-done"]


@pytest.mark.parametrize("point", POINTS)
def test_where_keys_are_honoured_a_killed_worker_repeats_and_the_charge_is_one(careful: Till, doomed: Doomed, point):
    customer = careful.new_customer()
    run = doomed.complete(point, "charge", "Charge for tea", stripe=careful.url, customer=customer)
    assert careful.taken(customer) == [doomed.output(run, "charge")]


@pytest.mark.parametrize("point", POINTS)
def test_where_keys_are_ignored_a_killed_worker_looks_it_up_and_the_charge_is_one(
    forgetful: Till, doomed: Doomed, point
):
    customer = forgetful.new_customer()
    run = doomed.complete(point, "charge-by-look-up", "Charge for tea", stripe=forgetful.url, customer=customer)
    assert forgetful.taken(customer) == [doomed.output(run, "charge_by_look_up")]


def test_where_keys_are_ignored_a_repeat_is_a_second_charge(forgetful: Till, doomed: Doomed):
    """Why such an API needs a look-up; and that the kills above do strike."""
    customer = forgetful.new_customer()
    doomed.complete("effect-done", "charge", "Charge for tea", stripe=forgetful.url, customer=customer)
    assert len(forgetful.taken(customer)) == 2


def test_the_keys_in_front_of_localstripe_are_kept_as_stripe_keeps_them(careful: Till):
    customer = careful.new_customer()
    ids = [plans.take_money(careful.url, customer, 100, key="k") for _ in range(2)]
    assert ids[0] == ids[1]
    with pytest.raises(stripe.IdempotencyError):
        plans.take_money(careful.url, customer, 101, key="k")
    assert careful.taken(customer) == ids[:1]


def test_a_declined_card_is_a_known_failure_and_a_retry_charges_under_the_next_key(careful: Till, declare, start, shop):
    customer = careful.new_customer(DECLINED_CARD)
    declare(plans.charge)
    run = shop.until(start(params={"stripe": careful.url, "customer": customer}))
    assert run.status == "failed" and "The card was declined" in run.reason
    careful.give_card(customer, GOOD_CARD)
    run.retry()
    shop.until(run)
    assert run.status == "completed"
    assert careful.taken(customer) == [run.steps.get(path="charge").value()]
    keys = run.keys.filter(scope="effect").order_by("pk")
    assert [row.key for row in keys] == [f"{run.pk}:charge", f"{run.pk}:charge~2"]
