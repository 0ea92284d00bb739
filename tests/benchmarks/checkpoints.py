"""One workload on the configured database, in this process: a run of no-op steps, and raw commits beside it."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median, quantiles
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentruns.settings")
django.setup()

from django.conf import settings  # noqa: E402
from django.db import connection  # noqa: E402

from agentruns import Plan, step, worker  # noqa: E402
from agentruns.models import Run  # noqa: E402
from agentruns.plan import plans  # noqa: E402

OUTPUT = "x" * 2_000
RAW_COMMITS = 100


class Stopwatch:
    """When each step's body began: from one to the next is one step with all that is written for it."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def body(self, ctx: Any) -> str:
        self.at.append(time.perf_counter())
        return OUTPUT

    def each(self) -> list[float]:
        return [after - before for before, after in zip(self.at, self.at[1:], strict=False)]


def plan_of(steps: int, watch: Stopwatch) -> Plan:
    return Plan("benchmark", [step(name=f"step-{number}")(watch.body) for number in range(steps)])


def raw_commits(number: int) -> list[float]:
    """Seconds of each commit of one row of 2 KB, by the driver, on the connection that agentruns uses."""
    connection.ensure_connection()
    mark = "?" if connection.vendor == "sqlite" else "%s"
    driver = connection.connection
    cursor = driver.cursor()
    begin = connection.vendor == "sqlite"
    cursor.execute("CREATE TABLE IF NOT EXISTS raw (id BIGINT, content TEXT)")
    times = []
    for one in range(number):
        began = time.perf_counter()
        cursor.execute("BEGIN IMMEDIATE" if begin else "BEGIN")
        cursor.execute(f"INSERT INTO raw (id, content) VALUES ({mark}, {mark})", (one, OUTPUT))
        cursor.execute("COMMIT")
        times.append(time.perf_counter() - began)
    cursor.close()
    return times


@contextmanager
def commits_counted() -> Iterator[list[int]]:
    """How often Django's connection commits inside."""
    count, real = [0], connection._commit  # type: ignore[attr-defined]

    def commit() -> None:
        count[0] += 1
        real()

    connection._commit = commit  # type: ignore[attr-defined]
    try:
        yield count
    finally:
        del connection._commit  # type: ignore[attr-defined]


def one_run(steps: int) -> tuple[list[float], float]:
    """Seconds of each step, and commits a step, of a run that is worked on in this process."""
    watch = Stopwatch()
    plans._plans = {"benchmark": plan_of(steps, watch)}
    run = Run.start("benchmark", "Nothing", model=settings.DEMO_MODEL)
    claimed_at = time.monotonic()
    claimed = Run.claim(worker="benchmark", lease=60)
    assert claimed is not None
    with commits_counted() as commits:
        ending = worker.work(claimed, claimed_at, claimed_at + 3_600)
    assert ending == "completed", ending
    assert run.steps.count() == steps
    return watch.each(), commits[0] / steps


def main() -> None:
    name, database, steps, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    raw, each, commits = [], [], 0.0
    for _ in range(rounds):
        raw += raw_commits(RAW_COMMITS)
        times, commits = one_run(steps)
        each += times
        raw += raw_commits(RAW_COMMITS)
    ratio = median(each) / median(raw)
    print(
        f"{name} {database:10} a step {1e3 * median(each):6.2f} ms (p95 {p95(each):6.2f})   a raw commit "
        f"{1e3 * median(raw):5.2f} ms (p95 {p95(raw):5.2f})   ratio {ratio:4.2f}   commits a step {commits:.3f}"
    )
    if name == "W2":
        tenth = len(each) // 10
        first, last = median(each[:tenth]), median(each[-tenth:])
        print(f"{name} {database:10} last tenth / first tenth {last / first:4.2f}")


def p95(times: list[float]) -> float:
    """In milliseconds."""
    return 1e3 * quantiles(times, n=20)[-1]


if __name__ == "__main__":
    main()
