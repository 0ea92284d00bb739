"""Effects as an author writes them, each at an outside of another kind; where that is comes with the run's params.

`charge`: Stripe, which honours keys: on_unknown="repeat", the default. `charge-by-look-up`: a Stripe that ignores them:
what was done is looked up by the key in its metadata. `notify`: an API of one's own behind @idempotent.
"""

import json
import os
import urllib.error
import urllib.request
from typing import Any

import stripe

from agentruns import PermanentError, Plan, step


def till(url: str) -> stripe.StripeClient:
    """Without retries of its own: an unknown outcome is the run's to decide on."""
    return stripe.StripeClient(os.environ["STRIPE_KEY"], base_addresses={"api": url}, max_network_retries=0)


def take_money(url: str, customer: str, cents: int, *, key: str) -> str:
    """The charge's id."""
    try:
        charge = till(url).v1.charges.create(
            {"customer": customer, "amount": cents, "currency": "usd", "metadata": {"key": key}},
            {"idempotency_key": key},
        )
    except stripe.CardError as declined:  # the one answer that says: it did not happen
        raise PermanentError(f"The card was declined: {declined}") from declined
    return charge.id


def find_charge(url: str, customer: str, cents: int, *, key: str) -> str | None:
    """What was taken under this key; None: nothing was."""
    charges = till(url).v1.charges.list({"customer": customer, "limit": 100}).auto_paging_iter()
    return next((one.id for one in charges if one.paid and one.metadata.to_dict().get("key") == key), None)


def post_notice(url: str, text: str, *, key: str) -> Any:
    """409 (at work) and 5xx leave by an HTTPError: unknown, and asked again with the same key."""
    request = urllib.request.Request(
        url, json.dumps({"text": text}).encode(), {"Content-Type": "application/json", "Idempotency-Key": key}
    )  # fmt: skip
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as refusal:
        if refusal.code in (400, 413, 422):
            raise PermanentError(f"The notice was refused: {refusal.read()[:500]!r}") from refusal
        raise


@step
def charge(ctx):
    return ctx.effect("stripe", take_money, ctx.params["stripe"], ctx.params["customer"], 4200)


@step
def charge_by_look_up(ctx):
    return ctx.effect("stripe", take_money, ctx.params["stripe"], ctx.params["customer"], 4200, on_unknown=find_charge)


@step(retries=6)  # 2 + 4 + … + 64 s: longer than the API takes to see that a request of its own died (`stale`)
def notify(ctx):
    return ctx.effect("post", post_notice, ctx.params["api"], ctx.task)


by_key = Plan("charge", [charge])
by_look_up = Plan("charge-by-look-up", [charge_by_look_up])
notice = Plan("notify", [notify])
