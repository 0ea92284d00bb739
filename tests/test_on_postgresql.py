"""The same tests on the other database: whatever uses the database runs again, on a PostgreSQL of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.once
def test_whatever_uses_the_database_passes_on_postgresql_too() -> None:
    """`pytest --postgresql [path]` is how to look at one failure of these."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--postgresql", "-q", "-p", "no:cacheprovider", "--color=no", "-n0", "tests"],
        cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    print(done.stdout.rstrip().rpartition("\n")[2])
    assert done.returncode == 0, f"on PostgreSQL:\n{done.stdout[-20_000:]}"
