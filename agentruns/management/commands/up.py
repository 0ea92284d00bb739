"""`manage.py up`: everything on one machine. It prepares, says what is used, and becomes the household that runs it."""

import argparse
import json
import os
import sys
import time
from dataclasses import asdict
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser
from django.db import connections

from agentruns.management.staying import StayingCommand
from agentruns.supervision import embedded, setup
from agentruns.supervision.home import Home
from agentruns.supervision.household import Order
from agentruns.supervision.posts import environment, posts


class Command(StayingCommand):
    help = (
        "Starts everything on this machine: web, workers, clock and, where nothing else is set, Redis, SQLite and the "
        "demo model. SIGTERM or Ctrl-C drains all of it; a second Ctrl-C stops at once."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
        parser.add_argument("--port", type=port, default=8000, help="port to listen on (8000); 0: any that is free")
        parser.add_argument("--workers", type=count, default=2, help="worker processes: runs at work at once (2)")
        parser.add_argument("--open", action="store_true", dest="browser", help="open the browser when it is ready")

    def handle(self, *args: Any, **options: Any) -> None:
        home = Home.take(settings.AGENTRUNS_HOME)
        try:
            order = self.prepare(home, options["host"], options["port"], options["workers"], options["browser"])
        except BaseException:
            home.say("")  # nothing was started that the next one would have to wait for
            raise
        become(order, environment(home, order.address))

    def prepare(self, home: Home, host: str, port: int, workers: int, browser: bool) -> Order:
        began_at = time.time()
        listener = home.listen(host, port)
        port = listener.getsockname()[1]
        address = address_of(host, port)
        home.say(f"process {os.getpid()}, {address}")
        children = posts(home, workers, listener.detach())
        setup.prepare_database()
        account = setup.first_account()
        connections.close_all()
        self.stdout.write(setup.summary(address, account, workers))
        redis_socket = embedded.socket_path(home.path) if children[0].name == "redis" else None
        if redis_socket:
            embedded.end_orphan(redis_socket)
        return Order(
            posts=[asdict(post) for post in children], host=reachable(host), port=port, address=address, lock=home.lock,
            redis_socket=str(redis_socket or ""), began_at=began_at, browser=browser,
        )  # fmt: skip


def port(text: str) -> int:
    if text.isdecimal() and int(text) < 65536:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no port: give a number from 0 to 65535.")


def count(text: str) -> int:
    if text.isdecimal() and 1 <= int(text) <= 1000:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no number of workers: give 1 or more.")


def reachable(host: str) -> str:
    """Where this machine finds a server that listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)  # noqa: S104


def address_of(host: str, port: int) -> str:
    name = reachable(host)
    return f"http://{f'[{name}]' if ':' in name else name}:{port}/"


def become(order: Order, env: dict[str, str]) -> None:
    """Ends Django here, with its 60 MB, and goes on as the household, under the same process id and lock."""
    root = str(settings.BASE_DIR)
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    env = {**os.environ, **env, "PYTHONPATH": path, "AGENTRUNS_ORDER": json.dumps(asdict(order))}
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, "-m", "agentruns.supervision.household"], env)  # noqa: S606
