"""A process that must not outlive its parent: when that is gone, however it went, this one gets SIGTERM and drains.

Without it a `kill -9` of `up` left its workers and its web server running for good, the port with them.
"""

import ctypes
import os
import signal
import sys
import threading
import time

VARIABLE = "AGENTRUNS_PARENT"
PR_SET_PDEATHSIG = 1
LOOK_SECONDS = 1.0

# Loaded once, before any fork: the call between fork and exec must not import or allocate much.
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def to_starter() -> None:
    """Ties this process to the one that asked for it, in its environment; most are asked for by nobody."""
    if parent := os.environ.pop(VARIABLE, ""):
        to_parent(int(parent))


def to_parent(parent: int) -> None:
    """Ties this process to `parent`, the pid that started it; it may be gone already.

    Linux tells us by a signal, which also survives an exec; elsewhere a thread looks once a second.
    """
    if _libc is not None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True, name="tether").start()
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
