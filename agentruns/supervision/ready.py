"""The word of a child that it is at work: one byte down a pipe that its parent gave it, or nothing outside of `up`."""

import contextlib
import os

VARIABLE = "AGENTRUNS_READY_FD"


def announce() -> None:
    """Says it once; a child that was not asked to, or has said it, says nothing."""
    fd = os.environ.pop(VARIABLE, "")
    if not fd:
        return
    with contextlib.suppress(OSError):  # nobody listens any more: then nobody waits for it either
        os.write(int(fd), b"+")
        os.close(int(fd))
