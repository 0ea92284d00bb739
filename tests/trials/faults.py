"""The faults, by their numbers in GUARANTEES.md. Each does one trial on a house and says what it did to which runs."""

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from typing import Any

from tests.trials import oracle, redis_faults
from tests.trials.house import LEASE_SECONDS, House
from tests.trials.judge import Trial
from tests.trials.rows import Rows

Fault = Callable[[House, random.Random, int], Trial]
ENDED = ("completed", "failed", "cancelled")
# How often each point is passed, at least, by one run of the kitchen sink.
POINTS = {
    "run-committed": 1, "run-rung": 1, "claimed": 2, "intent-committed": 2, "effect-done": 2, "answer-read": 2,
    "checkpoint-open": 12, "checkpointed": 12, "reserved": 2, "model-answered": 2, "heartbeat": 1, "approved": 2,
    "draining": 1, "ended": 1, "rescued": 1, "cancel-committed": 1, "body-written": 1, "notified": 1,
}  # fmt: skip
# Between a call's intent and its id: nobody can know whether it was sent.
BLIND = ("reserved", "model-answered")

IN_A_HORSE = (
    "claimed", "intent-committed", "effect-done", "answer-read", "checkpoint-open", "checkpointed", "reserved",
    "model-answered", "ended", "body-written",
)  # fmt: skip


def begin(house: House, number: int, seed: random.Random, **more: Any) -> str:
    return house.submit(f"trial-{number}-{seed.getrandbits(40):x}", **more)


def until_ended(house: House, runs: list[str], seconds: float = 60) -> None:
    """Mends the house meanwhile: what a fault has ended is started again, as a supervisor would."""
    rows, mended = Rows(house.url), [time.monotonic()]

    def over() -> bool:
        if time.monotonic() - mended[0] > 0.3:
            house.mend()
            mended[0] = time.monotonic()
        return all(status(rows, run) in ENDED for run in runs)

    house.until(over, f"{', '.join(run[:8] for run in runs)} ended", seconds)


def until_told(house: House, run: str) -> None:
    rows, waiting = Rows(house.url), "SELECT count(*) FROM agentruns_outbox WHERE run_id = ? AND sent_at IS NULL"

    def over() -> bool:
        house.mend()
        return not rows.one(waiting, rows.id(run))

    house.until(over, f"people were told of {run[:8]}")


def status(rows: Rows, run: str) -> str:
    return str(rows.one("SELECT status FROM agentruns_run WHERE id = ?", rows.id(run)))


def until_struck(house: House, rows: Rows, run: str) -> tuple[int, float] | None:
    """Who was struck; None when the run ended first."""
    house.until(lambda: house.struck() or status(rows, run) in ENDED, "the armed point is passed")
    return house.struck()


# --- F1: kill -9 at each named point ----------------------------------------------------------------------------------


def f1(house: House, seed: random.Random, number: int) -> Trial:
    point = list(POINTS)[number % len(POINTS)]
    house.arm(point, seed.randint(1, POINTS[point]))
    slow = {"params": {"pause": 0.3}} if point in ("heartbeat", "draining", "rescued", "cancel-committed") else {}
    run = begin(house, number, seed, **slow)
    ends: tuple[str, ...] = ("completed",)
    if point in ("draining", "rescued"):
        horse = house.until(house.horses, "a horse is at work")[0]
        for name in house.workers if point == "draining" else ():
            os.kill(house.system.pid(name), signal.SIGTERM)
        if point == "rescued":
            os.kill(horse, signal.SIGKILL)
    if point == "cancel-committed":
        time.sleep(seed.uniform(0, 1.5))
        while house.order(cancel=run) is None:
            continue
        ends = ("cancelled", "completed")
    until_ended(house, [run])
    until_told(house, run)
    struck = house.struck()
    return Trial([run], ends, struck_at=struck and struck[1], blind=int(point in BLIND))


# --- F2: kill -9 at a random time -------------------------------------------------------------------------------------


def f2(house: House, seed: random.Random, number: int) -> Trial:
    """Three runs at once; a horse alone, or a worker with all that is its."""
    runs = [begin(house, number, seed, params={"pause": 0.1}) for _ in range(3)]
    kills = seed.randint(1, 3)
    at = 0.0
    for _ in range(kills):
        time.sleep(seed.uniform(0.05, 1.2))
        at = house.now()
        horses = house.horses()
        if horses and seed.random() < 0.6:
            with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
                os.kill(seed.choice(horses), signal.SIGKILL)
        else:
            house.kill(seed.choice(house.workers))
            house.mend()
    until_ended(house, runs)
    # Of a worker that dies three times in a row with nothing new committed, the run is stopped by name.
    return Trial(runs, struck_at=at, blind=kills)


# --- F3: a worker that is stopped past its lease, and wakes up --------------------------------------------------------


def f3(house: House, seed: random.Random, number: int) -> Trial:
    point = ("intent-committed", "effect-done", "answer-read", "model-answered")[number % 4]
    house.arm(point, seed.randint(1, 2), "SIGSTOP")
    run = begin(house, number, seed)
    rows = Rows(house.url)
    struck = until_struck(house, rows, run)
    until_over = time.monotonic() + LEASE_SECONDS + 30
    while status(rows, run) not in ENDED and time.monotonic() < until_over:
        time.sleep(0.05)
    if struck is not None:
        os.kill(struck[0], signal.SIGCONT)
        time.sleep(1.0)  # for whatever the late worker still does
    until_ended(house, [run])
    return Trial([run], struck_at=struck and struck[1], blind=1)


# --- F11: an effect's API that misbehaves -----------------------------------------------------------------------------


def f11(house: House, seed: random.Random, number: int) -> Trial:
    kind = oracle.KINDS[number % len(oracle.KINDS)]
    name = seed.choice(("charge", "publish"))
    house.fault(name=name, kind=kind, times=seed.randint(1, 2) if kind not in ("refuse", "422") else 1)
    run = begin(house, number, seed)
    until_ended(house, [run])
    refused = kind in ("refuse", "422")
    if refused and status(Rows(house.url), run) == "failed":
        house.order(retry=run)
        until_ended(house, [run])
    return Trial([run], generations=1 + refused, once=kind != "forget-after")


# --- F17: cancel ------------------------------------------------------------------------------------------------------


def f17(house: House, seed: random.Random, number: int) -> Trial:
    """At a point, at a random time, twice, with a dead worker, and, seldom, with one that will not listen."""
    rows = Rows(house.url)
    if number % 20 == 19:
        run = house.submit(f"deaf-{number}-{seed.getrandbits(30)}", plan="deafness")
        house.until(house.horses, "a horse is at work")
        time.sleep(0.5)
        house.order(cancel=run)
        until_ended(house, [run])
        return Trial([run], ("cancelled",), stopped_at=stopped_at(rows, run))
    way = ("random", "point", "dead")[number % 3]
    if way == "random":
        run = begin(house, number, seed)
        time.sleep(seed.uniform(0, 2))
    else:
        point = seed.choice(IN_A_HORSE)
        house.arm(point, seed.randint(1, POINTS[point]), "SIGSTOP" if way == "point" else "SIGKILL")
        run = begin(house, number, seed)
        until_struck(house, rows, run)
    house.order(cancel=run)
    if seed.random() < 0.3:
        house.order(cancel=run)
    if way == "point" and (struck := house.struck()):
        os.kill(struck[0], signal.SIGCONT)
    until_ended(house, [run])
    return Trial([run], ("cancelled", "completed"), blind=1, stopped_at=stopped_at(rows, run))


def stopped_at(rows: Rows, run: str) -> dict[str, float]:
    found = rows.one(
        "SELECT cancel_requested_at FROM agentruns_run WHERE id = ? AND status = 'cancelled'", rows.id(run)
    )
    return {run: rows.epoch(found)} if found else {}


# --- F19: SIGTERM -----------------------------------------------------------------------------------------------------


def f19(house: House, seed: random.Random, number: int) -> Trial:
    """To every worker, at a point of one; now and then a second time."""
    rows = Rows(house.url)
    point = seed.choice(IN_A_HORSE)
    house.arm(point, seed.randint(1, POINTS[point]), "SIGSTOP")
    run = begin(house, number, seed)
    struck = until_struck(house, rows, run)
    for name in house.workers:
        os.kill(house.system.pid(name), signal.SIGTERM)
    second = seed.random() < 0.2
    if second:
        time.sleep(0.2)
        for name in house.workers:
            os.kill(house.system.pid(name), signal.SIGTERM)
    if struck is not None:
        os.kill(struck[0], signal.SIGCONT)
    codes = [house.system.processes[name].wait(timeout=20) for name in house.workers]
    until_ended(house, [run])
    trial = Trial([run], struck_at=struck and struck[1], blind=int(second))
    if not second and any(codes):
        trial.said.append(f"workers that were asked to stop ended with {codes}")
    return trial


# --- F21: a rescue that is wrong about a living worker ----------------------------------------------------------------


def f21(house: House, seed: random.Random, number: int) -> Trial:
    run = begin(house, number, seed, params={"pause": 0.05})
    rows, taken = Rows(house.url), 0
    while status(rows, run) not in ENDED and taken < 2:
        time.sleep(seed.uniform(0.01, 0.4))
        taken += bool(house.order(take=run))
    until_ended(house, [run])
    return Trial([run], blind=taken)


FAULTS: dict[str, Fault] = {
    "F1": f1, "F2": f2, "F3": f3, "F5": redis_faults.f5, "F11": f11, "F17": f17, "F19": f19, "F21": f21,
}  # fmt: skip
