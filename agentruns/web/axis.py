"""The time axis of a run's waterfall: time to percent, with the hours when nothing ran shrunk (DASHBOARD.md, C7)."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from agentruns.web.words import duration

# Percent of the width that is left free at both ends, and that a shrunk gap keeps.
LEFT, RIGHT, GAP = 1.0, 98.0, 3.0
TICK_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400)
TICKS = 5
# A gap is shrunk when it is longer than this many seconds and this share of the time at work.
LONG_SECONDS, LONG_SHARE = 5.0, 0.08


class Span(NamedTuple):
    """A stretch of time, in seconds since the run was made."""

    start: float
    end: float

    @property
    def length(self) -> float:
        return self.end - self.start


class Tick(NamedTuple):
    x: str
    label: str


@dataclass
class Axis:
    """Maps moments of one run to percent. `busy`: when anything ran; the rest are `gaps`."""

    origin: datetime
    length: float
    busy: list[Span]
    shrink: bool = True
    gaps: list[Span] = field(init=False)

    def __post_init__(self) -> None:
        self.length = max(self.length, 0.001)
        # A call may be settled after its run has ended, and two hosts' clocks differ: what lies outside is cut off.
        inside = (Span(max(span.start, 0.0), min(span.end, self.length)) for span in self.busy)
        self.busy = merged(span for span in inside if span.length >= 0)
        self.gaps = list(self._between(self.busy)) if self.busy else []  # before it begins there is nothing to miss
        self._shrunk = self._worth_shrinking() if self.shrink else []
        kept = self.length - sum(gap.length for gap in self._shrunk)
        self._scale = (RIGHT - LEFT - GAP * len(self._shrunk)) / max(kept, 0.001)

    def _between(self, busy: list[Span]) -> Iterable[Span]:
        at = 0.0
        for span in busy:
            if span.start > at:
                yield Span(at, span.start)
            at = max(at, span.end)
        if self.length > at:
            yield Span(at, self.length)

    def _worth_shrinking(self) -> list[Span]:
        """The longest gaps, as many as leave the bars most of the width."""
        work = sum(span.length for span in self.busy)
        long = [gap for gap in self.gaps if gap.length > max(LONG_SECONDS, LONG_SHARE * work)]
        return sorted(sorted(long, key=lambda gap: -gap.length)[:10])

    def seconds(self, moment: datetime) -> float:
        return (moment - self.origin).total_seconds()

    def percent(self, seconds: float) -> float:
        """Where a time of the run is drawn."""
        x = LEFT
        at = 0.0
        seconds = min(max(seconds, 0.0), self.length)
        for gap in self._shrunk:
            if seconds <= gap.start:
                break
            x += (gap.start - at) * self._scale
            if seconds < gap.end:
                return x + GAP * (seconds - gap.start) / gap.length
            x, at = x + GAP, gap.end
        return x + (seconds - at) * self._scale

    def place(self, span: Span) -> tuple[str, str]:
        """(x, width) of a bar, in percent, never too thin to see."""
        left, right = self.percent(span.start), self.percent(span.end)
        return f"{left:.2f}%", f"{max(right - left, 0.5):.2f}%"

    def x(self, seconds: float) -> str:
        return f"{self.percent(seconds):.2f}%"

    @property
    def is_shrunk(self) -> bool:
        return bool(self._shrunk)

    @property
    def ticks(self) -> list[Tick]:
        """Round times, as far apart as keeps about TICKS of them; none inside a shrunk gap."""
        visible = self.length - sum(gap.length for gap in self._shrunk)
        step = next((one for one in TICK_STEPS if visible / one <= TICKS), TICK_STEPS[-1])
        found: list[Tick] = []
        last = -100.0
        for n in range(min(int(self.length // step) + 1, 2000)):
            seconds = float(n * step)
            x = self.percent(seconds)
            if x - last >= 100 / (TICKS * 2) and not any(gap.start < seconds < gap.end for gap in self._shrunk):
                found.append(Tick(f"{x:.2f}%", duration(seconds).replace(".0s", "s").replace(" 00s", "")))
                last = x
        return found


def merged(spans: Iterable[Span]) -> list[Span]:
    """The same time, without overlaps, in order."""
    whole: list[Span] = []
    for span in sorted(spans):
        if whole and span.start <= whole[-1].end:
            whole[-1] = Span(whole[-1].start, max(whole[-1].end, span.end))
        else:
            whole.append(span)
    return whole
