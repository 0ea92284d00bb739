"""Webhooks between real processes: a worker dies before it has a call's id, and the provider's word saves the money."""

import http.client
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import pytest

from tests.system import System
from tests.webhooks import OTHER_SECRET, SECRET, URL, event, headers


@pytest.fixture
def told(system: System) -> System:
    """A system whose provider tells its web side of each response that has ended."""
    system.provider.stop()
    system.provider.start(speed=20, webhook=f"{system.url.rstrip('/')}{URL}", webhook_secret=SECRET)
    system.env |= {"OPENAI_WEBHOOK_SECRET": SECRET, "AGENT_UNKNOWN_SECONDS": "60"}
    return system


def of_run(system: System, run_id: str) -> tuple[Counter[str], int]:
    """How often the provider billed each ask of a run, by its path; how many POSTs it had for it."""
    ledger = system.ledger()
    billed = Counter(call["metadata"]["path"] for call in ledger["calls"] if call["metadata"].get("run") == run_id)
    return billed, sum(post["metadata"].get("run") == run_id for post in ledger["posts"])


def test_a_kill_between_the_post_and_its_id_costs_no_second_post(told: System, tmp_path: Path):
    crash = tmp_path / "crash"
    crash.write_text("model-answered:2")
    told.start(workers=1, web=True, CRASH_AT=f"@{crash}", AGENT_LEASE_SECONDS="3")
    run = told.until_ended(told.submit("report", "How a lock gate works"))
    assert crash.with_name("crash.fired").exists(), "no worker died"
    assert run["status"] == "completed"
    billed, posts = of_run(told, run["id"])
    assert set(billed.values()) == {1}
    assert posts == len(billed)
    assert {call["state"] for call in run["calls"]} == {"completed"}
    assert Decimal(run["unknown_usd"]) == 0
    assert run["spent_usd"] == told.ledger()["cost_usd"]


@pytest.mark.once
def test_a_flood_of_forged_webhooks_beside_the_true_ones_changes_nothing(told: System):
    told.start(workers=1, web=True)
    run_id = told.submit("report", "How a lock gate works")
    with ThreadPoolExecutor(4) as threads:
        answers = Counter(threads.map(lambda number: forge(told, f"wh_forged_{number}"), range(1000)))
    assert answers == {401: 1000}
    run = told.until_ended(run_id)
    assert run["status"] == "completed"
    billed, posts = of_run(told, run_id)
    assert posts == len(billed) == sum(billed.values())
    assert run["spent_usd"] == told.ledger()["cost_usd"]


def forge(system: System, event_id: str) -> int:
    """The status that a webhook gets which is signed with another secret."""
    body = event("resp_demo_forged")
    connection = http.client.HTTPConnection("127.0.0.1", system.port, timeout=60)
    connection.request("POST", URL, body, headers(body, event_id, secret=OTHER_SECRET))
    status = connection.getresponse().status
    connection.close()
    return status
