"""`python -m tests.trials [--faults F1,F3] [--trials N] [--database sqlite|postgresql|both] [--seed S] [--only N]`.

Prints trials, violations, the time to the next committed row after the fault, and for each violation the command that
repeats it. Exit 1 when there was one.
"""

import argparse
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles

from tests.trials.faults import FAULTS
from tests.trials.house import House
from tests.trials.judge import Judge


@dataclass
class Tally:
    fault: str
    database: str
    trials: int = 0
    violations: list[str] = field(default_factory=list)
    recoveries: list[float] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def __str__(self) -> str:
        bound = f"under {3 / self.trials:.2%} at 95 %" if self.trials and not self.violations else ""
        return (
            f"{self.fault:4} {self.database:10} {self.trials:5} trials  {len(self.violations):3} violations  "
            f"{(time.monotonic() - self.began) / max(self.trials, 1):.1f} s each  "
            f"recovery p50 {percentile(self.recoveries, 50)} p95 {percentile(self.recoveries, 95)} "
            f"worst {percentile(self.recoveries, 100)}  {bound}"
        )


def percentile(seconds: list[float], percent: int) -> str:
    if not seconds:
        return "-"
    if percent == 100 or len(seconds) == 1:
        return f"{max(seconds):.2f} s"
    return f"{quantiles(seconds, n=100, method='inclusive')[percent - 1]:.2f} s"


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.trials", description=__doc__)
    parser.add_argument("--faults", default=",".join(FAULTS), help=f"default: {','.join(FAULTS)}")
    parser.add_argument("--trials", type=int, default=20, help="of each fault, on each database (default: 20)")
    parser.add_argument("--database", choices=["sqlite", "postgresql", "both"], default="both")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="the trial of this number alone, to repeat it")
    asked = parser.parse_args(words)
    faults = asked.faults.split(",")
    if unknown := [fault for fault in faults if fault not in FAULTS]:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(FAULTS)}")
    databases = ["sqlite", "postgresql"] if asked.database == "both" else [asked.database]
    tallies = [tally for database in databases for tally in on(database, faults, asked)]
    return int(any(tally.violations for tally in tallies))


def on(database: str, faults: list[str], asked: argparse.Namespace) -> list[Tally]:
    tallies = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agentruns-trials-")))
        folder.chmod(0o711)
        house = House(folder, database, stack)
        for fault in faults:
            tally = Tally(fault, database)
            tallies.append(tally)
            for number in range(asked.trials) if asked.only is None else (asked.only,):
                one(house, fault, number, asked.seed, tally)
            print(tally, flush=True)
    return tallies


def one(house: House, fault: str, number: int, seed: int, tally: Tally) -> None:
    """The choices of a trial hang on its seed, fault and number alone, so that it can be repeated alone."""
    again = f"--faults {fault} --seed {seed} --only {number} --database {house.database}"
    try:
        with house.keeping_up():
            trial = FAULTS[fault](house, random.Random(f"{seed} {fault} {number}"), number)
            judge = Judge(house)
            found = trial.said + judge.violations(trial)
            recovery = judge.recovery(trial)
    except AssertionError as error:
        found, recovery = [f"it hangs: {error}"], None
    tally.trials += 1
    tally.violations += found
    if recovery is not None:
        tally.recoveries.append(recovery)
    for violation in found:
        print(f"VIOLATION {fault} {violation}\n  again: python -m tests.trials {again}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
