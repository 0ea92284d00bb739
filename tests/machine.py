"""What tests need of the machine: PostgreSQL and Chromium, installed where missing, or a failure that says why."""

import os
import shutil
import socket
import subprocess
from functools import cache
from pathlib import Path

INSTALL = ["install", "-y", "--no-install-recommends"]


class Missing(Exception):
    """The machine lacks a program and does not let us install it. Tests fail by it; none is skipped."""


@cache
def chromium() -> str:
    """Path of a Chromium or Chrome."""
    return program("chromium", "chromium-browser", "google-chrome", package="chromium")


@cache
def postgresql() -> Path:
    """The folder of initdb and pg_ctl: Debian keeps them off the PATH."""
    return Path(program("initdb", folders="/usr/lib/postgresql/*/bin", package="postgresql")).resolve().parent


def program(*names: str, package: str, folders: str = "") -> str:
    """The path of the first program that is there, after an apt-get install if need be. Raises Missing."""
    if found := look(names, folders):
        return found
    install(package)
    if found := look(names, folders):
        return found
    raise Missing(f"apt-get installed {package!r}, but there is no program called {' or '.join(names)}.")


def look(names: tuple[str, ...], folders: str) -> str | None:
    places = [str(place) for place in sorted(Path("/").glob(folders.lstrip("/")), reverse=True)] if folders else []
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *places])
    return next((found for name in names if (found := shutil.which(name, path=path))), None)


def install(package: str) -> None:
    as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    remedy = f"Install the package {package!r} by hand, then run the tests again."
    for command in (["apt-get", "update"], ["apt-get", *INSTALL, package]):
        try:
            done = subprocess.run(
                [*as_root, *command], env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900,
            )  # fmt: skip
        except FileNotFoundError as error:
            raise Missing(f"{package} is missing, and so is {error.filename}. {remedy}") from None
        if done.returncode and command[1] == "install":
            raise Missing(f"{' '.join(command)} failed: {done.stdout.strip()[-2000:]}\n{remedy}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Cluster:
    """A PostgreSQL of our own on a free port of loopback, with the settings that it has by itself: fsync and all."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()

    def start(self) -> "Cluster":
        self.folder.mkdir()
        if os.geteuid() == 0:  # which initdb refuses to be
            shutil.chown(self.folder, "postgres", "postgres")
        self.run("initdb", "--pgdata", self.data, "--username", "postgres", "--auth", "trust", "--encoding", "UTF8")
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.folder}"
        self.run(
            "pg_ctl", "start", "--wait", "--pgdata", self.data, "--log", f"{self.folder}/log", "--options", options
        )
        return self

    def stop(self) -> None:
        self.run("pg_ctl", "stop", "--pgdata", self.data, "--mode", "immediate")

    @property
    def data(self) -> str:
        return f"{self.folder}/data"

    def url(self, name: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{name}"

    def create(self, name: str, template: str = "template1") -> str:
        """A new database; returns its URL."""
        self.run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-T", template, name)
        return self.url(name)

    def run(self, name: str, *arguments: str) -> None:
        as_postgres = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        done = subprocess.run(
            [*as_postgres, str(postgresql() / name), *arguments], cwd="/", stdin=subprocess.DEVNULL,
            # pg_ctl's server inherits what we would read from; it must not be a pipe
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL if name == "pg_ctl" else subprocess.PIPE, text=True,
        )  # fmt: skip
        assert done.returncode == 0, f"{name} failed: {done.stderr or self.log()}"

    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text()[-2000:] if path.exists() else "it left no log"
