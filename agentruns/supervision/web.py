"""Gunicorn's settings (`gunicorn --config python:agentruns.supervision.web agentruns.wsgi`): one process, 8 threads.

The dashboard's answers are short and wait for the database, so threads serve it; more processes are more memory.
"""

import threading
import warnings
from typing import Any

from agentruns import tether

worker_class = "gthread"
workers = 1
threads = 8
timeout = 60
graceful_timeout = 10
keepalive = 5
accesslog = None
loglevel = "warning"
control_socket_disable = True  # it would make a folder in the home directory of whoever runs this

# WhiteNoise misses STATIC_ROOT; it is only for those who run collectstatic, and found here in the packages themselves.
warnings.filterwarnings("ignore", message="No directory at")

_over = threading.Event()


def on_starting(server: Any) -> None:
    tether.to_starter()


def post_worker_init(worker: Any) -> None:
    """The application is loaded: from here on requests are answered."""
    from agentruns.supervision import ready
    from agentruns.supervision.presence import Presence

    global _over, _presence
    _presence = Presence("web")
    _over = _presence.keep_in_thread()
    ready.announce()


def worker_exit(server: Any, worker: Any) -> None:
    _over.set()
    if _presence:
        _presence.end()


_presence: Any = None
