"""A run's steps as rows of a table, each with its bars: done, running, waiting, cut off, still to come."""

from collections import defaultdict
from dataclasses import dataclass, field

from agentruns.encoding import fingerprint
from agentruns.models import Run
from agentruns.models.receipt import Receipt
from agentruns.models.step_lines import StepLine
from agentruns.web.axis import Axis
from agentruns.web.bars import Bar, Bars, Resume
from agentruns.web.words import step_pill

# Rows of one live region: 200 morph in tens of milliseconds, thousands do not.
ROWS = 200
# More lines than this under one step are folded to those that are not finished.
UNDER_ONE = 8


@dataclass
class Row:
    """A line of the table; or, without a line, what stands for `folded` lines `under` a top-level path."""

    line: StepLine | None
    bars: list[Bar] = field(default_factory=list)
    is_lone_ask: bool = False
    folded: int = 0
    finished: int = 0
    under: str = ""
    href: str = ""

    @property
    def id(self) -> str:
        """The same in every drawing, so that a morph keeps focus; a path has characters that no id should."""
        return fingerprint(self.line.path if self.line else self.under)[:8]

    @property
    def icon(self) -> str:
        return step_pill(self.line).icon if self.line else ""

    @property
    def icon_tone(self) -> str:
        return f"{step_pill(self.line).tone}-t" if self.line else ""

    @property
    def kind_icon(self) -> str:
        """A model call, alone in its step or by itself; a sleep; else a step with more under it."""
        kind = "ask" if self.is_lone_ask else self.line.kind if self.line else ""
        return {"ask": "chip", "sleep": "clock"}.get(kind, "tree")

    @property
    def try_number(self) -> int:
        """The try that this is, or was the last: after a setback one more, unless it ended with that."""
        return self.line.setbacks + (self.line.status != "failed") if self.line else 1

    @property
    def tokens(self) -> int:
        return self.line.tokens["input"] + self.line.tokens["output"] if self.line else 0


@dataclass
class Waterfall:
    rows: list[Row]
    axis: Axis
    gaps: list[Bar]
    resumes: list[Resume]
    now: str
    """Where the present is, in percent; empty once the run has ended."""
    left_out: int

    @property
    def has_setbacks(self) -> bool:
        return any(bar.kind == "lost" for row in self.rows for bar in row.bars)


def waterfall(run: Run, lines: list[StepLine], paid: Receipt, *, opened: str = "", shrink: bool = True) -> Waterfall:
    """The table of `lines`; `opened`: the top-level path whose lines are all listed."""
    bars = Bars(run, paid, shrink)
    rows = folded(lines, opened)
    for row in rows[:ROWS]:
        row.bars = bars.of(row.line) if row.line else []
    return Waterfall(
        rows=rows[:ROWS],
        axis=bars.axis,
        gaps=bars.gaps(),
        resumes=list(bars.resumes()),
        now="" if run.is_ended else bars.axis.x(bars.axis.length),
        left_out=max(0, len(rows) - ROWS),
    )


def folded(lines: list[StepLine], opened: str) -> list[Row]:
    """The rows: an ask that is all there is to its step is not told twice; long lists show what is not finished."""
    rows: list[Row] = []
    for top, below in _branches(lines):
        if len(below) == 1 and below[0].kind == "ask":
            rows.append(Row(top, is_lone_ask=True))
        else:
            rows += [Row(top), *_below(top, _without_lone_asks(below), top.path == opened)]
    return rows


def _branches(lines: list[StepLine]) -> list[tuple[StepLine, list[StepLine]]]:
    branches: list[tuple[StepLine, list[StepLine]]] = []
    for line in lines:
        if line.depth == 0:
            branches.append((line, []))
        elif branches:
            branches[-1][1].append(line)
    return branches


def _without_lone_asks(below: list[StepLine]) -> list[StepLine]:
    """Leaves out the one ask of a sub-step: the sub-step's own line has its cost, time and output."""
    paths = {line.path for line in below}
    children: defaultdict[str, int] = defaultdict(int)
    for line in below:
        children[_parent(line)] += 1
    return [line for line in below if line.kind != "ask" or _parent(line) not in paths or children[_parent(line)] > 1]


def _below(top: StepLine, below: list[StepLine], is_open: bool) -> list[Row]:
    if is_open or len(below) <= UNDER_ONE:
        return [Row(line) for line in below]
    shown = [line for line in below if line.status != "finished"][: UNDER_ONE - 1]
    finished = sum(line.status == "finished" for line in below)
    return [
        *(Row(line) for line in shown),
        Row(None, folded=len(below) - len(shown), finished=finished, under=top.path),
    ]


def _parent(line: StepLine) -> str:
    return line.path.rpartition("/")[0]
