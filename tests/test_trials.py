"""A short set of the trials, and that each guarantee's mutant still fits the code that it mutates."""

import subprocess
import sys

import pytest

from tests.mutants.__main__ import mutated
from tests.mutants.table import MUTANTS
from tests.system import ROOT

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("faults", "database", "trials"),
    [
        ("F1", "sqlite", 18),
        ("F1", "postgresql", 18),
        ("F2,F3,F17,F21", "sqlite", 3),
        ("F5", "sqlite", 6),
        ("F11", "sqlite", 6),
        ("F2,F19", "postgresql", 2),
    ],
)
def test_whatever_dies_nothing_is_paid_or_done_twice(faults, database, trials):
    words = ["--faults", faults, "--database", database, "--trials", str(trials)]
    done = subprocess.run([sys.executable, "-m", "tests.trials", *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-4000:]}"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.guarantee)
def test_a_mutant_fits_its_code(mutant):
    """`python -m tests.mutants` runs them."""
    text = (ROOT / mutant.path).read_text()
    assert mutated(text, mutant) != text
