"""What the process that answers a ring (RQ's work-horse) knows of itself: whose it is, whether it was asked to stop."""

import signal
from time import monotonic
from typing import Any

from agentruns import tether

STOPPING = (signal.SIGTERM, signal.SIGINT)

_process_name = ""
_draining_since: float | None = None


def process_name() -> str:
    """Name of the Process row that this horse works for; empty outside a worker."""
    return _process_name


def belongs_to(name: str) -> None:
    """Said by the worker before it forks: horses inherit it."""
    global _process_name
    _process_name = name


def draining() -> bool:
    """Whether this process was asked to stop: nothing new begins, the run goes on elsewhere."""
    return _draining_since is not None


def draining_since() -> float | None:
    """When the drain began, by time.monotonic(); None while there is none."""
    return _draining_since


def drain(*_signal: Any) -> None:
    """Handler of SIGTERM and SIGINT: sets a flag, kills nothing (RQ's own horse dies of SIGTERM, its job with it)."""
    global _draining_since
    _draining_since = _draining_since or monotonic()


def saddle(worker_pid: int, *, drained: bool) -> None:
    """First thing after the fork, with STOPPING still blocked: a signal sent meanwhile arrives when it can be heard."""
    for number in STOPPING:
        signal.signal(number, drain)
    if drained:
        drain()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    tether.to_parent(worker_pid)
