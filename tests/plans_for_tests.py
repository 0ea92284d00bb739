"""The plan "two", and what a worker's hands do to a run of it without the engine: each function is one verb's worth."""

from decimal import Decimal
from typing import Any

from django.utils import timezone

from agentruns import Plan, step
from agentruns.models import Attempt, Call, Run, Step, Wait
from agentruns.models.ledger import Booking, settle, submitted

LEASE = 60.0


@step
def first(ctx):
    """Says a word."""
    return ctx.ask("Say a word.")


@step(aliases=["old_second"])
def second(ctx):
    return ctx.ask("Say another.")


two = Plan("two", [first, second], title="Two steps", budget="1.00")


def claimed(run: Run | None = None) -> Run:
    """The run (a new one), at work for worker-1."""
    started = run or Run.start("two", "A task for two", model="demo")
    held = Run.claim(worker="worker-1", lease=LEASE)
    assert held is not None and held.pk == started.pk
    return held


def call_at(run: Run, path: str, *, reserved: str = "0.01") -> Call:
    """A call in flight at the provider."""
    call = run.intend(
        Call(
            path=path, top=path.split("/")[0], model="demo", provider="http://demo/v1", key=f"{run.pk}:{path}",
            fingerprint="0" * 64, request={"input": "?"}, reserved=Decimal(reserved), attempt=run.at_number,
        )
    )  # fmt: skip
    submitted(call, f"resp_{call.pk}")
    return Call.objects.get(pk=call.pk)


def settled(call: Call, *, cost: str = "0.0025", state: str = "completed", **more: Any) -> None:
    booking = Booking(
        state=state, cost=Decimal(cost), input_tokens=100, cached_tokens=40, output_tokens=20, reasoning_tokens=5,
        answer={"text": "word"}, **more,
    )  # fmt: skip
    assert settle(call, booking)


def row_of(run: Run, path: str, output: Any, kind: str = "step", labels: Any = ("trusted",)) -> Step:
    return Step(
        run=run, path=path, top=path.split("/")[0], kind=kind, output=output, labels=list(labels), reads=[],
        started_at=timezone.now(), finished_at=timezone.now(),
    )  # fmt: skip


def ended(run: Run, outcome: str = "finished", **more: Any) -> Attempt:
    return Attempt(
        run=run, path=run.at_path, number=run.at_number, worker=run.worker, started_at=run.at_since,
        ended_at=timezone.now(), outcome=outcome, **more,
    )  # fmt: skip


def checkpointed(run: Run, output: Any, upcoming: str | None, *below: Step) -> Run:
    """The step at work finished with `output`; `upcoming` is next, or nothing: the run is completed."""
    rows = [*below, row_of(run, run.at_path, output)]
    run.checkpoint(rows, ended(run), upcoming, 1, LEASE, "build-1")
    return Run.objects.get(pk=run.pk)


def parked(run: Run, kind: str, path: str, *, outcome: str = "parked", error: str = "", **more: Any) -> Run:
    wait = Wait(path=path, kind=kind, **more)
    run.park([wait], ended(run, outcome, error=error), failed=outcome == "failed", reason=error)
    return Run.objects.get(pk=run.pk)


def failed(run: Run, error: str = "ValueError: no such word") -> Run:
    run.fail(ended(run, "failed", error=error), error)
    return Run.objects.get(pk=run.pk)
