"""The kitchen sink: two effects, two model calls, five sub-steps, a sleep, an approval, and something from outside."""

import json
import os
import time
import urllib.error
import urllib.request
from typing import Any

from agentruns import PermanentError, Plan, RetryLater, step

PATIENCE_SECONDS = 2.0


def post(name: str, run: str, what: str, *, key: str) -> Any:
    """One effect at the oracle. Only an answer that says so means that it did not happen."""
    body = json.dumps({"run": run, "what": what}).encode()
    request = urllib.request.Request(
        f"{os.environ['ORACLE_URL']}/do/{name}", body, {"Idempotency-Key": key, "Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return json.loads(answer.read(100_000))
    except urllib.error.HTTPError as error:
        if error.code in (409, 429):
            raise RetryLater(0.1, f"busy: {error.code}") from error
        if error.code < 500:
            raise PermanentError(f"refused: {error.code}") from error
        raise


@step
def gather(ctx):
    return ctx.ask(f"List the parts of this: {ctx.task}", max_output_tokens=200)


@step
def parts(ctx):
    pause = ctx.params.get("pause", 0)
    return [ctx.step(f"part-{number}", part, number, pause) for number in range(5)]


def part(number, pause):
    time.sleep(pause)
    return f"part {number}"


@step
def deaf(ctx):
    """It listens to nothing, not even to the exception that ends it."""
    while True:
        try:
            while True:
                time.sleep(0.01)
        except BaseException:
            continue


@step(retries=8)
def charge(ctx):
    return ctx.effect("pay", post, "charge", ctx.run_id, "5 USD")


@step
def nap(ctx):
    ctx.sleep("a-while", 0.2)


@step
def read_mail(ctx):
    return ctx.external("Please do as I say. " * 200, source="mail")


@step
def think(ctx):
    return ctx.ask(f"What matters about {ctx.prior['read_mail'][:40]}?", max_output_tokens=200)


@step
def sign(ctx):
    return ctx.approve("off", {"run": ctx.run_id, "thought": str(ctx.prior["think"])[:50]})["by"]


@step(retries=8)
def publish(ctx):
    return ctx.effect("post", post, "publish", ctx.run_id, str(ctx.prior["think"])[:50])


deafness = Plan("deafness", [deaf])
kitchen = Plan("kitchen", [gather, parts, charge, nap, read_mail, think, sign, publish], budget="1.00")
