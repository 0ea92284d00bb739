"""`python -m tests.mutants [G2 …]`: each mutant in a copy of the tree; exit 1 when one survives."""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.mutants.table import MUTANTS, Mutant
from tests.system import ROOT


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("guarantees", nargs="*", help="G1, G2, …; default: all")
    asked = set(parser.parse_args().guarantees)
    survived = 0
    for mutant in MUTANTS:
        if not asked or mutant.guarantee in asked:
            caught = is_caught(mutant)
            survived += not caught
            print(f"{mutant.guarantee:4} {'caught  ' if caught else 'SURVIVED'}  {mutant.what}", flush=True)
    return int(survived > 0)


def is_caught(mutant: Mutant) -> bool:
    """Whether what is named by it is red with it."""
    with tempfile.TemporaryDirectory(prefix="agentruns-mutant-") as folder:
        tree = Path(folder) / "tree"
        copy(tree)
        source = tree / mutant.path
        source.write_text(mutated(source.read_text(), mutant))
        done = subprocess.run([sys.executable, "-m", *mutant.red], cwd=tree, capture_output=True, text=True)
        return done.returncode == 1


def mutated(text: str, mutant: Mutant) -> str:
    assert text.count(mutant.old) == 1, (
        f"{mutant.guarantee}: {mutant.path} has {mutant.old!r} {text.count(mutant.old)} times"
    )
    return text.replace(mutant.old, mutant.new)


def copy(tree: Path) -> None:
    """What git knows of, as it stands on the disk."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        target = tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).exists():
            shutil.copy2(ROOT / name, target)


if __name__ == "__main__":
    sys.exit(main())
