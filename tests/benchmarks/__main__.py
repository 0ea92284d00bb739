"""`python -m tests.benchmarks [W1] [W2] [resume] [memory] [--database sqlite|postgresql|both] [--rounds N]`.

W1: one run of 200 no-op steps with 2 KB outputs. W2: the same with 5,000, its last tenth against its first. Each beside
a loop of raw one-row commits on the same database, in the same run. resume: from the claim of a run with 100,000
finished steps to its first new one, and the worker's memory. memory: all processes of an idle `up` together.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.benchmarks import memory
from tests.machine import Cluster
from tests.system import ROOT

WORKLOADS = {"W1": 200, "W2": 5_000}
RESUMED_STEPS, SHAPES = 100_000, ("sub", "top")
ALL = (*WORKLOADS, "resume", "memory")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("what", nargs="*", default=list(ALL), help=f"{', '.join(ALL)} (default: all)")
    parser.add_argument("--database", choices=["sqlite", "postgresql", "both"], default="both")
    parser.add_argument("--rounds", type=int, default=5, help="of W1 (default: 5); W2 is run once")
    parser.add_argument("--steps", type=int, help="another number of steps, to try it quickly")
    options = parser.parse_args()
    if unknown := set(options.what) - set(ALL):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(ALL)}")
    databases = ["sqlite", "postgresql"] if options.database == "both" else [options.database]
    for database in databases if set(options.what) - {"memory"} else ():
        on_database(database, options)
    if "memory" in options.what:
        memory.report()
    return 0


def on_database(database: str, options: argparse.Namespace) -> None:
    """One process a workload, on a database of its own: settings are read once."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agentruns-benchmark-")))
        home.chmod(0o711)
        url = f"sqlite:///{home / 'benchmark.sqlite3'}"
        if database == "postgresql":
            cluster = Cluster(home / "postgresql").start()
            stack.callback(cluster.stop)
            url = cluster.create("benchmark")
        env = os.environ | {"AGENTRUNS_HOME": str(home), "DATABASE_URL": url, "LOG_LEVEL": "error"}
        env["REDIS_URL"] = f"unix://{home}/no-redis.sock"
        subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=ROOT, env=env, check=True)
        for name in [name for name in WORKLOADS if name in options.what]:
            steps = options.steps or WORKLOADS[name]
            rounds = options.rounds if name == "W1" else 1
            in_process(env, "checkpoints", name, database, str(steps), str(rounds))
        for shape in SHAPES if "resume" in options.what else ():
            steps = str(options.steps or RESUMED_STEPS)
            in_process(env, "resume", "fill", shape, steps)
            in_process(env, "resume", "measure", shape, database, steps)


def in_process(env: dict[str, str], module: str, *words: str) -> None:
    subprocess.run([sys.executable, "-m", f"tests.benchmarks.{module}", *words], cwd=ROOT, env=env, check=True)


if __name__ == "__main__":
    sys.exit(main())
