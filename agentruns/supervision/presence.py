"""The heartbeat row of this process: pages and warnings read it, never RQ's registries."""

import logging
import os
import secrets
import socket
import threading
from time import monotonic

import psutil
from django.db import Error as DatabaseError
from django.db import connections

from agentruns import build
from agentruns.models.process import Process

log = logging.getLogger(__name__)
BEAT_SECONDS = 4.0


class Presence:
    """A row that is made with the first beat and says how it ended. A database that is away is waited for."""

    def __init__(self, kind: str) -> None:
        self.kind, self.host, self.pid = kind, socket.gethostname()[:60], os.getpid()
        self.name = f"{kind}-{self.host}-{self.pid}-{secrets.token_hex(3)}"
        self._is_born = False
        self._next = 0.0

    def beat(self) -> None:
        """Writes that this process lives, at most every BEAT_SECONDS. No connection stays open for a fork to share."""
        if monotonic() < self._next:
            return
        self._next = monotonic() + BEAT_SECONDS
        try:
            if not self._is_born:
                Process.born(self.name, self.kind, self.host, self.pid, build.current())
                self._is_born = True
            Process.beat(self.name, memory_bytes=memory_bytes())
        except DatabaseError as error:
            log.warning("%s: its heartbeat was not written (%s).", self.name, str(error).strip())
        finally:
            connections.close_all()

    def end(self) -> None:
        try:
            Process.ended(self.name)
        except DatabaseError as error:
            log.warning("%s: its end was not written (%s).", self.name, str(error).strip())
        finally:
            connections.close_all()

    def keep_in_thread(self) -> threading.Event:
        """Beats until the returned event is set, for a process that never forks."""
        over = threading.Event()

        def keep() -> None:
            self.beat()
            while not over.wait(BEAT_SECONDS):
                self.beat()

        threading.Thread(target=keep, daemon=True, name="presence").start()
        return over


def memory_bytes() -> int:
    """What this process and its children have in memory, shared pages counted for each."""
    me = psutil.Process()
    total = int(me.memory_info().rss)
    for child in me.children():
        try:
            total += int(child.memory_info().rss)
        except psutil.NoSuchProcess:
            continue
    return total
