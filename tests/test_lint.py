"""What a reviewer should not have to say: ruff and mypy are part of the tests."""

import subprocess
import sys

import pytest

from tests.system import ROOT


@pytest.mark.parametrize(
    "command",
    [["ruff", "check", "--no-cache"], ["ruff", "format", "--check", "--no-cache"], ["mypy"]],
    ids=["ruff check", "ruff format", "mypy"],
)
def test_the_source_is_clean(command):
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
