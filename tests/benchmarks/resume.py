"""How soon a run with many finished steps is at its first new one, and how large its worker gets, in this process.

`fill` writes such a run; `measure` is a worker of its own that goes on with it. Two shapes: `sub`, one top-level step
with that many sub-steps, and `top`, that many top-level steps.
"""

import os
import resource
import sys
import time
from collections.abc import Iterator
from itertools import batched
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentruns.settings")
django.setup()

from django.conf import settings  # noqa: E402
from django.utils import timezone  # noqa: E402

from agentruns import Plan, encoding, step, worker  # noqa: E402
from agentruns.models import Attempt, Run, Step  # noqa: E402
from agentruns.models.step import seal_of  # noqa: E402
from agentruns.plan import plans  # noqa: E402

OUTPUT = "x" * 2_000
BATCH = 2_000


def plan_of(shape: str, steps: int, reached: Any) -> Plan:
    def old(ctx: Any) -> str:
        raise AssertionError("it is finished")

    def many(ctx: Any) -> int:
        read = sum(len(ctx.step(f"part-{number}", old)) for number in range(steps))
        ctx.step("new", reached)
        return read

    def last(ctx: Any) -> None:
        reached()

    if shape == "sub":
        return Plan("benchmark", [step(name="many")(many)])
    return Plan("benchmark", [*(step(name=f"part-{number}")(old) for number in range(steps)), step(name="new")(last)])


def finished(run: Run, shape: str, steps: int) -> Iterator[Step]:
    at, kind, text, labels = timezone.now(), "part" if shape == "sub" else "step", encoding.dumps(OUTPUT), ["trusted"]
    for number in range(steps):
        path = f"many/part-{number}" if shape == "sub" else f"part-{number}"
        yield Step(
            run=run, path=path, top=path.split("/")[0], kind=kind, output=OUTPUT, labels=labels, reads=[],
            started_at=at, finished_at=at, seal=seal_of(path, kind, text, None, encoding.dumps(labels)),
        )  # fmt: skip


def fill(shape: str, steps: int) -> None:
    plans._plans = {"benchmark": plan_of(shape, steps, None)}
    run = Run.start("benchmark", "Nothing", model=settings.DEMO_MODEL)
    for rows in batched(finished(run, shape, steps), BATCH):
        Step.objects.bulk_create(rows)
        if shape == "top":
            Attempt.objects.bulk_create(
                Attempt(run=run, path=row.path, number=1, ended_at=row.finished_at, outcome="finished") for row in rows
            )
    Run.objects.filter(pk=run.pk).update(at_path="many" if shape == "sub" else "new")


def measure(shape: str, database: str, steps: int) -> None:
    reached: list[float] = []
    plans._plans = {"benchmark": plan_of(shape, steps, lambda: reached.append(time.perf_counter()))}
    idle = megabytes()
    began, claimed_at, worked = time.perf_counter(), time.monotonic(), time.process_time()
    run = Run.claim(worker="benchmark", lease=60)
    assert run is not None
    ending = worker.work(run, claimed_at, claimed_at + 3_600)
    assert ending == "completed", ending
    print(
        f"resume {database:10} {steps:,} finished {shape}-level steps: first new step after "
        f"{reached[0] - began:5.2f} s ({time.process_time() - worked:.2f} s of them at work here); "
        f"worker {megabytes():.0f} MB at most ({idle:.0f} MB before)"
    )


def megabytes() -> float:
    """The most that this process has ever had, RSS."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    if sys.argv[1] == "fill":
        fill(sys.argv[2], int(sys.argv[3]))
    else:
        measure(sys.argv[2], sys.argv[3], int(sys.argv[4]))
