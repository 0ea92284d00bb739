"""What going on with a run, or forking it, would reuse and run: by name, with what it cost and is likely to cost."""

from collections import defaultdict
from dataclasses import dataclass
from decimal import Decimal
from statistics import median
from typing import Any

from django.db.models import Sum

from agentruns.models.call import SETTLED, Call
from agentruns.models.receipt import receipt
from agentruns.models.step import Step
from agentruns.plan import StepFunction, plans

RUNS_LOOKED_AT = 40
ZERO = Decimal(0)


@dataclass(frozen=True)
class Line:
    """One top-level step. `verdict`: reused, to_run, new, renamed, orphaned. `cost`: USD it cost; `likely`: what it
    cost in the median of the plan's last 40 completed runs, None without one."""

    path: str
    verdict: str
    cost: Decimal
    likely: Decimal | None


def preview(run: Any, from_path: str | None = None) -> list[Line]:
    """The plan's steps in order, as they would be treated; then orphans: begun, and no longer in the plan."""
    plan = plans.get(run.plan)
    rows = list(Step.objects.filter(run=run).defer("output"))
    kept = run.inherited_by_fork(plan, from_path) if from_path else rows
    finished = {step.path for step in kept if step.kind == "step"}
    paid, likely, begun = receipt(run).by_top, likely_costs(run), run.begun()
    lines = []
    for step in plan.steps:
        name = step.name_in(finished, begun)
        expected = next((likely[one] for one in step.names if one in likely), None)
        lines.append(Line(step.name, verdict(step, name, finished, begun, expected), paid.get(name, ZERO), expected))
    orphans = sorted((finished | begun) - set(plan.by_name))
    return lines + [Line(path, "orphaned", paid.get(path, ZERO), None) for path in orphans]


def verdict(step: StepFunction, name: str, finished: set[str], begun: set[str], expected: Decimal | None) -> str:
    """What becomes of `step`, which the run knows under `name`."""
    if name in finished:
        return "reused" if name == step.name else "renamed"
    return "to_run" if expected is not None or begun.intersection(step.names) else "new"


def likely_costs(run: Any) -> dict[str, Decimal]:
    """The median cost of each top-level step over the plan's last completed runs, by name."""
    past = run.rows().filter(plan=run.plan, model=run.model, status="completed").exclude(pk=run.pk)
    ids = list(past.order_by("-created_at").values_list("pk", flat=True)[:RUNS_LOOKED_AT])
    costs: defaultdict[str, list[Decimal]] = defaultdict(list)
    sums = Call.objects.filter(run__in=ids, state__in=SETTLED).values("run", "top").annotate(usd=Sum("cost"))
    for one in sums.order_by():
        costs[one["top"]].append(one["usd"])
    return {top: median(usd) for top, usd in costs.items()}
