"""F5: the doorbell is emptied, killed, full, stopped, or gone for good; nothing but time is lost."""

import os
import random
import shutil
import signal
import time
from typing import Any

import redis

from tests.trials.house import House
from tests.trials.judge import Trial

KINDS = ("flush", "kill", "kill-and-delete", "full", "stop", "away")


def f5(house: House, seed: random.Random, number: int) -> Trial:
    from tests.trials.faults import begin, until_ended

    kind = KINDS[number % len(KINDS)]
    runs = [begin(house, number, seed)]
    time.sleep(seed.uniform(0, 0.8))
    at = house.now()
    strike(house, kind)
    runs.append(begin(house, number, seed))
    time.sleep(seed.uniform(0.2, 1.0))
    heal(house, kind)
    until_ended(house, runs)
    return Trial(runs, struck_at=at)


def line(house: House) -> Any:
    return redis.Redis.from_url(house.system.env["REDIS_URL"], socket_timeout=2)


def strike(house: House, kind: str) -> None:
    pid = house.system.pid("redis")
    match kind:
        case "flush":
            line(house).flushall()
        case "full":
            line(house).config_set("maxmemory", "1mb")
        case "stop":
            os.kill(pid, signal.SIGSTOP)
        case _:
            house.system.processes["redis"].kill()
            house.system.processes["redis"].wait()
            if kind == "kill-and-delete":
                for path in house.system.home.glob("redis*"):
                    shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()


def heal(house: House, kind: str) -> None:
    if kind == "full":
        line(house).config_set("maxmemory", "0")
    elif kind == "stop":
        os.kill(house.system.pid("redis"), signal.SIGCONT)
    house.mend()
