"""What one AGENTRUNS_HOME has only once: the `up` that runs on it, its address, the port of its demo model."""

import fcntl
import os
import random
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from agentruns.errors import Refusal

# The children of an `up` that was killed drain for a while, and hold their ports while they do (seconds).
PATIENCE_SECONDS = 15.0
# Below the ports that systems hand out to connections that go out: one of those in our place would stop the demo.
DEMO_PORTS = range(20_000, 32_000)


class HomeTaken(Refusal):
    def __init__(self, home: Path, holder: str) -> None:
        super().__init__(
            f"agentruns already runs on {home} ({holder}). Stop that one, or give this one its own AGENTRUNS_HOME."
        )


class NoHome(Refusal):
    def __init__(self, home: Path, error: OSError) -> None:
        super().__init__(f"{home} cannot be written: {error.strerror}. Set AGENTRUNS_HOME to a folder of this user.")


class PortTaken(Refusal):
    def __init__(self, host: str, port: int, why: str) -> None:
        super().__init__(f"{host}:{port} cannot be used: {why}. Choose another with --port.")


@dataclass(frozen=True)
class Home:
    """A folder that is ours until this process, or what it becomes by exec, is gone, however it goes."""

    path: Path
    lock: int
    patience: float

    @classmethod
    def take(cls, path: Path) -> "Home":
        """Raises HomeTaken, with what the other one wrote of itself, or NoHome."""
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(path / "up.lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise NoHome(path, error) from None
        before = os.pread(lock, 200, 0).decode(errors="replace")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise HomeTaken(path, before) from None
        os.set_inheritable(lock, True)
        # Who ends well empties the file.
        return cls(path, lock, PATIENCE_SECONDS if before else 0.0)

    def say(self, text: str) -> None:
        """What a second `up` shows of this one."""
        os.ftruncate(self.lock, 0)
        os.pwrite(self.lock, text.encode(), 0)

    def listen(self, host: str, port: int) -> socket.socket:
        """The web server's socket, open from here on: while the web process starts again, browsers wait, not fail.

        Raises PortTaken.
        """
        ends = time.monotonic() + self.patience
        while True:
            try:
                return _bound(host, port)
            except OSError as error:
                if time.monotonic() >= ends:
                    raise PortTaken(host, port, (error.strerror or str(error)).lower()) from None
                time.sleep(0.2)

    def demo_port(self) -> int:
        """One that was free once, then always the same, because calls in flight remember their provider's address."""
        kept = self.path / "demo_port"
        if kept.exists() and (number := kept.read_text().strip()).isdecimal():
            return int(number)
        while not _is_free(port := random.choice(DEMO_PORTS)):  # noqa: S311 a port is no secret
            continue
        kept.write_text(str(port))
        return port


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(256)
    except OSError:
        listener.close()
        raise
    listener.set_inheritable(True)
    return listener


def _is_free(port: int) -> bool:
    try:
        _bound("127.0.0.1", port).close()
    except OSError:
        return False
    return True
