"""Named points at which a trial may end this process, as SIGKILL would: CRASH_AT=point:n, the n-th time it passes.

CRASH_AT=@FILE names a file instead, which arms many processes at once, for one shot: it holds `point:n` or
`point:n:SIGNAL`, is looked at whenever a point is passed, and is renamed to FILE.fired by whoever is struck.
"""

import contextlib
import os
import signal
from itertools import count

_asked = os.environ.get("CRASH_AT", "")
ARMED = bool(_asked)
_name, _, _number = _asked.partition(":")
_passed = count(1)


def point(name: str) -> None:
    """Nothing, unless a trial named this point (GUARANTEES.md lists them)."""
    if not ARMED or not name:
        return
    if _asked.startswith("@"):
        _look(_asked[1:], name)
    elif name == _name and next(_passed) == int(_number or 1):
        os.kill(os.getpid(), signal.SIGKILL)


def _look(path: str, name: str) -> None:
    """Counted over all processes: each pass appends a byte to FILE.passed."""
    try:
        with open(path) as file:
            asked, number, kind = (*file.read().split(":"), "1", "SIGKILL")[:3]
    except FileNotFoundError:
        return
    if asked != name:
        return
    with open(f"{path}.passed", "ab", buffering=0) as passed:
        passed.write(b".")
        times = passed.tell()
    if times < int(number):
        return
    with contextlib.suppress(FileNotFoundError):  # another process was first
        os.rename(path, f"{path}.fired")
        with open(f"{path}.fired", "w") as fired:
            fired.write(f"{os.getpid()}")
        os.kill(os.getpid(), signal.Signals[kind])
