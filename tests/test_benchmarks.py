"""The benchmarks work; what they measure is theirs to print, and no test's to judge."""

import re
import subprocess
import sys

import pytest

from tests.system import ROOT


@pytest.mark.once
def test_a_small_benchmark_prints_ratios_and_counts_one_commit_a_step():
    said = small("W1", "W2", "--rounds", "1")
    assert re.findall(r"commits a step (\S+)", said) == ["1.000", "1.000"]
    assert "last tenth / first tenth" in said


@pytest.mark.once
def test_a_small_resume_prints_how_soon_and_how_large():
    said = small("resume")
    assert re.findall(r"100 finished (\S+) steps: first new step after +\d", said) == ["sub-level", "top-level"]


def small(*what: str) -> str:
    command = [sys.executable, "-m", "tests.benchmarks", *what, "--database", "sqlite", "--steps", "100"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
