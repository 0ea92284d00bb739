"""The rows of a run as a tree of paths: what stands at each, what is under it, when it began, what it came to."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from itertools import chain, pairwise
from typing import Any

from agentruns.models.call import SETTLED, Call
from agentruns.models.receipt import Receipt
from agentruns.models.step import Attempt, Step
from agentruns.models.wait import Wait

ZERO = Decimal(0)


@dataclass
class Spent:
    """What the calls at or under one path came to: USD of settled ones, tokens of all."""

    cost: Decimal = ZERO
    tokens: dict[str, int] = field(default_factory=lambda: {"input": 0, "cached": 0, "output": 0, "reasoning": 0})

    def add(self, call: Call) -> None:
        self.cost += call.cost if call.state in SETTLED else ZERO
        self.tokens["input"] += call.input_tokens
        self.tokens["cached"] += call.cached_tokens
        self.tokens["output"] += call.output_tokens
        self.tokens["reasoning"] += call.reasoning_tokens


class Branches:
    """Steps, attempts, calls and open waits of `run` by path, loaded without outputs, requests and answers.

    A part at work has no row of its own yet: it is known from what is under it.
    """

    def __init__(self, run: Any, paid: Receipt) -> None:
        self.run = run
        self.steps = {row.path: row for row in Step.objects.filter(run=run).defer("output", "reads")}
        self.attempts = grouped(Attempt.objects.filter(run=run).defer("traceback").order_by("number"))
        self.calls = grouped(paid.calls)
        self.waits = {row.path: row for row in Wait.objects.filter(run=run, closed_at=None).defer("payload")}
        self.spent: defaultdict[str, Spent] = defaultdict(Spent)
        self.first_start: dict[str, datetime] = {}
        self.below: defaultdict[str, set[str]] = defaultdict(set)
        self.calling: set[str] = set()
        """Paths at or above an open call."""
        self.wait_kinds: defaultdict[str, set[str]] = defaultdict(set)
        """Of the open waits at or under a path."""
        self._link()
        self._sum(paid.calls)

    def _link(self) -> None:
        for path, at in self._starts():
            line = list(at_or_above(path))
            for child, parent in pairwise(line):
                self.below[parent].add(child)
            for one in line:
                self.first_start[one] = min(at, self.first_start.get(one, at))

    def _starts(self) -> Iterator[tuple[str, datetime]]:
        for step in self.steps.values():
            yield step.path, step.started_at or step.finished_at
        for attempt in chain(*self.attempts.values()):
            yield attempt.path, attempt.started_at or attempt.ended_at
        for call in chain(*self.calls.values()):
            yield call.path, call.created_at
        for wait in self.waits.values():
            yield wait.path, wait.opened_at
        if self.run.at_path and self.run.at_since:
            yield self.run.at_path, self.run.at_since

    def _sum(self, calls: Iterable[Call]) -> None:
        for call in calls:
            for path in at_or_above(call.path):
                self.spent[path].add(call)
        for path, tries in self.calls.items():
            if tries[-1].is_open:
                self.calling.update(at_or_above(path))
        for wait in self.waits.values():
            for path in at_or_above(wait.path):
                self.wait_kinds[path].add(wait.kind)

    def tops(self) -> list[str]:
        """Top-level steps that have begun, by first start."""
        return self._by_start(path for path in self.first_start if "/" not in path)

    def under(self, path: str) -> Iterator[str]:
        """Every path under `path`: each followed by what is under it, by first start."""
        for child in self._by_start(self.below.get(path, ())):
            yield child
            yield from self.under(child)

    def _by_start(self, paths: Iterable[str]) -> list[str]:
        return sorted(paths, key=lambda path: (self.first_start[path], path))

    def is_answered(self, path: str) -> bool:
        """Its last call is completed; the next checkpoint takes the answer."""
        tries = self.calls.get(path)
        return bool(tries and tries[-1].state == "completed")


def at_or_above(path: str) -> Iterator[str]:
    """The path itself, then what it is under, the top-level step last."""
    while path:
        yield path
        path = path.rpartition("/")[0]


def grouped(rows: Iterable[Any]) -> dict[str, list[Any]]:
    by_path: defaultdict[str, list[Any]] = defaultdict(list)
    for row in rows:
        by_path[row.path].append(row)
    return dict(by_path)
