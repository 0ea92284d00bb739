"""The benchmarks work; what they measure is theirs to print, and no test's to judge."""

import re
import subprocess
import sys

import pytest

from tests.system import ROOT


@pytest.mark.once
def test_a_small_benchmark_prints_ratios_and_counts_one_commit_a_step():
    command = [sys.executable, "-m", "tests.benchmarks", "W1", "W2", "--database", "sqlite", "--rounds", "1"]
    said = subprocess.run([*command, "--steps", "100"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"commits a step (\S+)", said) == ["1.000", "1.000"]
    assert "last tenth / first tenth" in said
