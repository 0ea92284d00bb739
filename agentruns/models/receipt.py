"""What a run cost, kept and lost: sums over its ledger, attempts and checkpoints; the figures of every page."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from agentruns.models.call import OPEN, SETTLED, Call
from agentruns.models.step import Attempt, Step

ZERO = Decimal(0)


@dataclass
class Receipt:
    """USD and tokens of one run. spent, unknown, reserved are disjoint; kept is what a resume did not pay again."""

    spent: Decimal = ZERO
    unknown: Decimal = ZERO
    reserved: Decimal = ZERO
    kept: Decimal = ZERO
    lost: Decimal = ZERO
    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0
    interruptions: int = 0
    by_top: dict[str, Decimal] = field(default_factory=dict)
    by_path: dict[str, Decimal] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)

    @property
    def tokens(self) -> dict[str, int]:
        return {"input": self.input, "cached": self.cached, "output": self.output, "reasoning": self.reasoning}


# What was sent and answered may be megabytes; no sum needs it.
PAYLOAD = ("request", "answer", "partial")


def receipt(run: Any) -> Receipt:
    """The receipt of `run`, from its rows as they are now."""
    total = Receipt()
    by_top: defaultdict[str, Decimal] = defaultdict(Decimal)
    by_path: defaultdict[str, Decimal] = defaultdict(Decimal)
    calls = list(Call.objects.filter(run=run).defer(*PAYLOAD).order_by("created_at", "pk"))
    for call in calls:
        by_top[call.top] += _booked(call)
        by_path[call.path] += _booked(call)
        total.spent += call.cost if call.state in SETTLED else ZERO
        total.unknown += call.reserved if call.state == "unknown" else ZERO
        total.reserved += call.reserved if call.state in OPEN else ZERO
        total.input += call.input_tokens
        total.cached += call.cached_tokens
        total.output += call.output_tokens
        total.reasoning += call.reasoning_tokens
    total.by_top, total.by_path, total.calls = dict(by_top), dict(by_path), calls
    interrupted = Attempt.objects.filter(run=run, outcome="interrupted").exclude(cause="cancel")
    breaks = list(interrupted.values_list("ended_at", flat=True))
    total.interruptions = len(breaks)
    retries = list(run.events.filter(kind="retried").values_list("at", flat=True))
    if breaks or retries:
        total.kept = _kept(run, sorted(breaks + retries), by_top)
    total.lost = _lost(run, calls, bool(breaks))
    return total


def _booked(call: Call) -> Decimal:
    return call.cost if call.state in SETTLED else ZERO


def _kept(run: Any, breaks: list[datetime], by_top: dict[str, Decimal]) -> Decimal:
    """Σ, over breaks after which a step was finished, of what the steps finished before them had cost."""
    ends = list(Step.objects.filter(run=run, kind="step").values_list("path", "finished_at"))
    last = max((end for _, end in ends), default=None)
    return sum(
        (
            by_top.get(path, ZERO)
            for when in breaks
            if last is not None and last > when
            for path, end in ends
            if end <= when
        ),
        ZERO,
    )


def _lost(run: Any, calls: list[Call], was_interrupted: bool) -> Decimal:
    """What was paid, or may have been, and brought no step anything: calls that an interruption cut off, the other
    try where two tries of one ask were answered, and answers that their provider had no more."""
    cut: set[tuple[str, int]] = set()
    if was_interrupted:
        interrupted = run.attempts.filter(outcome="interrupted")
        cut = {(path, number) for path, number in interrupted.values_list("path", "number")}
    tries: defaultdict[tuple[str, int], list[Call]] = defaultdict(list)
    for call in calls:
        tries[call.path, call.ask].append(call)
    return sum((_figure(call) for same in tries.values() for call in _lost_of(same, cut)), ZERO)


def _lost_of(tries: list[Call], cut: set[tuple[str, int]]) -> Iterator[Call]:
    """Of the tries of one ask, oldest first: those whose answer was not taken, and will not be."""
    answers = [call for call in tries if call.state == "completed"]
    taken = min(answers, key=lambda call: (call.settled_at, call.number), default=None)
    for call in tries:
        if call is taken or call.state in OPEN:
            continue
        is_cut = (call.top, call.attempt) in cut and (call.state == "unknown" or call is not tries[-1])
        if is_cut or call.state == "expired" or taken is not None:
            yield call


def _figure(call: Call) -> Decimal:
    return call.cost if call.state in SETTLED else call.reserved
