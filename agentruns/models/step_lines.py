"""The steps of a run as a page or a terminal lists them: finished, at work, and still to come. No output is loaded."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from agentruns.errors import PlanError, UnknownPlan
from agentruns.models.branches import Branches
from agentruns.models.call import OPEN
from agentruns.models.receipt import Receipt, receipt
from agentruns.models.status import Status
from agentruns.models.step import Attempt, Step
from agentruns.models.wait import KINDS
from agentruns.plan import StepFunction, plans

# What a run waits for, as it reads after "waiting for".
WAITS_FOR = {
    "operator": "a person",
    "approval": "an approval",
    "effect": "a person's word on an effect",
    "budget": "a higher budget",
    "price": "the model's price",
    "code": "the code of its next step",
    "provider": "the provider",
    "slot": "a free place for a call",
    "retry": "its next try",
    "timer": "a time to come",
    "model": "the model's answer",
}
WORKER = "a worker"


@dataclass(frozen=True, kw_only=True)
class StepLine:
    """One step or sub-step of a run. `cost` (USD) and `tokens` are those of the calls at or under its path."""

    path: str
    title: str
    depth: int
    """0 for a top-level step, 1 for what is right under it, and so on."""
    kind: str
    """step, part, ask or sleep."""
    status: str
    """to_come, running, waiting, finished, failed or cancelled."""
    attempts: int
    """Executions of a top-level step, the one at work and parked ones included; calls of an ask."""
    setbacks: int
    """Those of the attempts that failed or were interrupted."""
    cost: Decimal
    tokens: dict[str, int]
    """input, cached (inside input), output, reasoning (inside output)."""
    started_at: datetime | None
    finished_at: datetime | None
    """Empty unless it is finished."""
    labels: list[str]
    error: str
    """Why its last try did not work out; empty once it is finished."""
    waiting: str
    """What it waits for, as it reads after "waiting for"; empty unless it waits."""


def steps(run: Any, paid: Receipt | None = None) -> list[StepLine]:
    """The lines of `run`: top-level steps in the plan's order, each followed by what is under it, by first start.

    What was begun under a step that the plan no longer has is kept, before what is to come. `paid`: the run's receipt,
    if the caller has it already. At most 8 queries, however many steps there are.
    """
    rows = Branches(run, paid or receipt(run))
    lines: list[StepLine] = []
    for path, declared in top_level(rows):
        top = top_line(rows, path, declared)
        lines += [top, *(sub_line(rows, below, top.status) for below in rows.under(path))]
    return lines


# --- top-level steps ----------------------------------------------------------------------------------------------


def top_level(rows: Branches) -> list[tuple[str, StepFunction | None]]:
    """Paths of top-level steps in order, with their function where the plan still has it."""
    run = rows.run
    declared = declared_steps(run.plan)
    known: dict[str, StepFunction | None] = {one.name_in(rows.steps, rows.first_start): one for one in declared}
    begun = rows.tops()
    names = {name for one in declared for name in one.names}
    if run.at_path and not run.is_final and run.at_path not in {*begun, *names}:
        begun.append(run.at_path)
    if run.status == Status.COMPLETED:  # what the plan has gained since will not come in this run
        known = {path: one for path, one in known.items() if path in rows.first_start}
    lines = list(known.items())
    for gone in (path for path in begun if path not in known):
        later = (i for i, (path, _) in enumerate(lines) if path not in begun or is_later(begun, path, gone))
        lines.insert(next(later, len(lines)), (gone, None))
    return lines


def is_later(begun: list[str], path: str, other: str) -> bool:
    return begun.index(path) > begun.index(other)


def declared_steps(plan: str) -> tuple[StepFunction, ...]:
    """The plan's steps; none when the plan is gone or cannot load: the rows still tell what was done."""
    try:
        return plans.get(plan).steps
    except (UnknownPlan, PlanError):
        return ()


def top_line(rows: Branches, path: str, declared: StepFunction | None) -> StepLine:
    attempts, status = rows.attempts.get(path, []), top_status(rows, path)
    at_work = rows.run.at_path == path and rows.run.at_since is not None
    return StepLine(
        path=path,
        depth=0,
        kind="step",
        title=declared.title if declared else title_of(path),
        status=status,
        attempts=len(attempts) + at_work,
        setbacks=sum(attempt.outcome in {"failed", "interrupted"} for attempt in attempts),
        error=top_error(rows.run, status, attempts),
        **common(rows, path, status),
    )


def top_status(rows: Branches, path: str) -> str:
    run = rows.run
    if path in rows.steps:
        return "finished"
    if path != run.at_path:
        return "to_come"
    if run.status == Status.QUEUED:
        return "waiting" if path in rows.first_start else "to_come"
    return str(run.status)


def top_error(run: Any, status: str, attempts: list[Attempt]) -> str:
    if status == "failed":
        return str(run.reason)
    if status != "finished" and attempts and attempts[-1].outcome == "failed":
        return str(attempts[-1].error)
    return ""


# --- what is under them -------------------------------------------------------------------------------------------


def sub_line(rows: Branches, path: str, top: str) -> StepLine:
    """The line of a path under a top-level step whose status is `top`."""
    calls, status = rows.calls.get(path, []), sub_status(rows, path, top)
    return StepLine(
        path=path,
        depth=path.count("/"),
        kind=kind_of(rows, path),
        title=title_of(path),
        status=status,
        attempts=max(1, len(calls)),
        setbacks=sum(call.state not in {*OPEN, "completed"} for call in calls),
        error=str(calls[-1].error) if calls and status != "finished" else "",
        **common(rows, path, status),
    )


def sub_status(rows: Branches, path: str, top: str) -> str:
    """Finished by its checkpoint, or by an answer that the next one takes; else as what is in flight under it says."""
    if path in rows.steps:
        return "finished"
    if top == "failed":
        return top
    if path in rows.calling and top in {"running", "waiting"}:
        return top
    if path in rows.wait_kinds and top in {"running", "waiting"}:
        return "waiting"
    if rows.is_answered(path):
        return "finished"
    return "failed" if top == "finished" else top


def kind_of(rows: Branches, path: str) -> str:
    if path in rows.steps:
        return str(rows.steps[path].kind)
    if path in rows.waits and rows.waits[path].kind == "timer":
        return "sleep"
    if path in rows.calls or path in rows.waits:
        return "ask"
    return "part"


# --- either -------------------------------------------------------------------------------------------------------


def common(rows: Branches, path: str, status: str) -> dict[str, Any]:
    step, spent = rows.steps.get(path), rows.spent[path]
    return {
        "cost": spent.cost,
        "tokens": spent.tokens,
        "started_at": rows.first_start.get(path),
        "finished_at": step and step.finished_at,
        "labels": labels_of(step) if step else [],
        "waiting": waits_for(rows, path) if status == "waiting" else "",
    }


def waits_for(rows: Branches, path: str) -> str:
    run = rows.run
    if run.status == Status.QUEUED and path == run.at_path:
        return WORKER
    kinds = set(rows.wait_kinds.get(path, ()))
    if path == run.at_path and run.waiting_for:
        kinds.add(run.waiting_for)
    return WAITS_FOR[min(kinds, key=KINDS.index, default="model")]


def labels_of(step: Step) -> list[str]:
    return list(step.labels) if isinstance(step.labels, list) else ["external"]


def title_of(path: str) -> str:
    """The last name of a path as a person reads it: an item by its own name."""
    name = path.rpartition("/")[2]
    _, colon, item = name.partition(":")
    return item if colon else name.replace("_", " ").replace("-", " ").capitalize()
