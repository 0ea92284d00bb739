"""One step up close: its output, what it cost and how that adds up, its attempts and calls."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from agentruns.models import Attempt, Call, Run
from agentruns.models.call import OPEN, SETTLED
from agentruns.models.receipt import Receipt
from agentruns.models.step_lines import StepLine
from agentruns.web.output import PREVIEW, Output, output_of
from agentruns.web.words import usd, visible

# Attempts and calls that are listed, newest first; a parked step has an attempt for every wake.
LISTED = 20
MILLION = Decimal(1_000_000)


class Sum(NamedTuple):
    """One line of the arithmetic: tokens × price = USD."""

    label: str
    tokens: int
    price: str
    cost: Decimal


@dataclass
class Detail:
    line: StepLine
    output: Output | None
    attempts: list[Attempt]
    calls: list[Call]
    more: int
    sums: list[Sum]
    models: str
    worker: str
    since: datetime | None
    """Since when the provider has a call of it."""
    partial: str


def chosen(run: Run, lines: list[StepLine], path: str) -> StepLine | None:
    """The line at `path`; without one, what a person would look at first: trouble, then work, then the result."""
    if found := next((line for line in lines if line.path == path), None):
        return found
    tops = [line for line in lines if line.depth == 0]
    for status in ("failed", "cancelled", "running", "waiting"):
        if found := next((line for line in tops if line.status == status), None):
            return found
    finished = [line for line in tops if line.status == "finished"]
    return finished[-1] if finished else next(iter(tops), None)


def detail(run: Run, line: StepLine, paid: Receipt) -> Detail:
    """Everything about `line` that its panel shows; outputs are read as previews."""
    calls = [call for call in paid.calls if call.path == line.path or call.path.startswith(f"{line.path}/")]
    attempts = list(Attempt.objects.filter(run=run, path=line.path).order_by("-number")[: LISTED + 1])
    at_work = next((call for call in reversed(calls) if call.state in OPEN), None)
    return Detail(
        line=line,
        output=output_of(run, line.path) if line.status == "finished" else None,
        attempts=attempts[:LISTED],
        calls=calls[::-1][:LISTED],
        more=max(0, len(calls) - LISTED),
        sums=list(arithmetic(calls)),
        models=", ".join(sorted({call.model for call in calls})),
        worker=run.worker if line.status == "running" and run.at_path == line.path else "",
        since=at_work.created_at if at_work else None,
        partial=_partial(at_work),
    )


def _partial(call: Call | None) -> str:
    """The text of a stream so far; a call in the background has none."""
    if call is None or call.background:
        return ""
    text = Call.objects.filter(pk=call.pk).values_list("partial", flat=True).first()
    return visible(text or "")[-PREVIEW:]


def arithmetic(calls: Iterable[Call]) -> Iterable[Sum]:
    """How the settled calls' cost adds up: tokens × price, and what the prices do not explain (a tier, a window)."""
    groups: defaultdict[tuple[str, str, str], list[Call]] = defaultdict(list)
    total = explained = Decimal(0)
    for call in calls:
        price: Any = call.price
        if call.state in SETTLED:
            total += call.cost
        if call.state in SETTLED and isinstance(price, dict) and call.cost:
            fresh, output = price.get("input", "0"), price.get("output", "0")
            groups[fresh, price.get("cached") or fresh, output].append(call)
    for (fresh, cached, output), priced in groups.items():
        for one in _sums(priced, fresh, cached, output):
            explained += one.cost
            yield one
    if groups and (rest := total - explained) and abs(rest) >= Decimal("0.00005"):
        yield Sum("Tier and rounding", 0, "", rest)


def _sums(calls: list[Call], fresh: str, cached: str, output: str) -> Iterable[Sum]:
    reused = sum(call.cached_tokens for call in calls)
    thought = sum(call.reasoning_tokens for call in calls)
    counts = (
        ("Input, fresh", sum(call.input_tokens for call in calls) - reused, fresh),
        ("Input, cached", reused, cached),
        ("Output", sum(call.output_tokens for call in calls) - thought, output),
        ("Reasoning", thought, output),
    )
    for label, count, price in counts:
        if count:
            yield Sum(label, count, f"{usd(Decimal(price))}/M", count * Decimal(price) / MILLION)
