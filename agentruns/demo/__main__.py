"""`python -m agentruns.demo`: serves the demo provider on loopback until SIGTERM, Ctrl-C or the end of its parent."""

import argparse
import os
import signal
import sqlite3
import sys
import threading
import time
from pathlib import Path
from typing import Any

from agentruns.demo import MARK, PORT
from agentruns.demo.api import Api, Options
from agentruns.demo.courier import Courier
from agentruns.demo.server import HOST, Server
from agentruns.demo.state import State

PARENT_SECONDS = 0.5


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 after a stop, 2 when it could not start."""
    asked = options(arguments)
    try:
        server = open_server(asked)
        courier = open_courier(asked, server)
    except CannotStart as error:
        print(f"demo model: {error}", file=sys.stderr)
        return 2
    try:
        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        if asked.parent:
            threading.Thread(target=follow, args=(asked.parent,), daemon=True).start()
        print(f"{MARK}: http://{HOST}:{server.server_port}/v1 (prices invented; state in {asked.state})", flush=True)
        if courier:
            courier.start()
        server.serve_forever()
    except Stop:
        server.server_close()
        if courier and courier.is_alive():
            courier.end()
        server.api.state.close()
    return 0


def options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m agentruns.demo", description=f"{MARK}. OpenAI's Responses API on loopback."
    )
    parser.add_argument("--port", type=int, default=PORT, help="0 takes a free one and prints it (default %(default)s)")
    parser.add_argument("--state", type=Path, required=True, help="SQLite file; it survives kill -9")
    parser.add_argument(
        "--speed", type=speed, default=os.environ.get("DEMO_SPEED", "1"), help="10 is ten times as fast"
    )
    parser.add_argument("--background", choices=("on", "off", "ignored"), default="on")
    parser.add_argument(
        "--idempotency", choices=("on", "off"), default="off", help="honour Idempotency-Key (the vendor does not)"
    )
    parser.add_argument("--poll-after", choices=("on", "off"), default="on", help="the header openai-poll-after-ms")
    parser.add_argument("--keep", type=float, default=30 * 86400, metavar="SECONDS", help="then a response is 404")
    parser.add_argument(
        "--stream-life", type=float, default=300, metavar="SECONDS", help="then no stream can be taken up"
    )
    parser.add_argument("--webhook", metavar="URL", help="is told of each background response that has ended")
    parser.add_argument("--webhook-secret", metavar="WHSEC", help="what these webhooks are signed with")
    parser.add_argument("--parent", type=int, metavar="PID", help="end when this process has ended")
    asked = parser.parse_args(arguments)
    if bool(asked.webhook) != bool(asked.webhook_secret):
        parser.error("--webhook and --webhook-secret go together")
    return asked


def speed(text: str) -> float:
    value = float(text)
    if not 0.001 <= value <= 100_000:
        raise argparse.ArgumentTypeError("a speed is between 0.001 and 100000")
    return value


class CannotStart(Exception):
    """The port or the state file cannot be had; the message is one line with the remedy."""


def open_server(asked: argparse.Namespace) -> Server:
    behaviour = Options(
        speed=asked.speed,
        background=asked.background,
        idempotency=asked.idempotency == "on",
        poll_after=asked.poll_after == "on",
        keep_seconds=asked.keep,
        stream_seconds=asked.stream_life,
    )
    try:
        asked.state.parent.mkdir(parents=True, exist_ok=True)
        state = State(asked.state)
    except (OSError, sqlite3.Error) as error:
        remedy = "Is another demo model using it? Choose another --state."
        raise CannotStart(f"cannot use the state file {asked.state}: {error}. {remedy}") from None
    try:
        return Server(asked.port, Api(state, behaviour))
    except (OSError, OverflowError) as error:
        raise CannotStart(f"cannot listen on {HOST}:{asked.port}: {error}. Choose another --port.") from None


def open_courier(asked: argparse.Namespace, server: Server) -> Courier | None:
    if not asked.webhook:
        return None
    try:
        return Courier(server.api.state, asked.webhook, asked.webhook_secret)
    except ValueError as error:
        raise CannotStart(f"cannot send webhooks: {error}.") from None


class Stop(BaseException):
    """SIGTERM or SIGINT, raised in the main thread wherever it is, mostly in its wait for connections."""


def stop(number: int, frame: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # one is enough; a second would break the closing
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise Stop


def follow(parent: int) -> None:
    """Ends this process when `parent` has: a provider that nobody owns would keep its port from the next one."""
    is_child = os.getppid() == parent
    while os.getppid() == parent if is_child else exists(parent):
        time.sleep(PARENT_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


def exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


if __name__ == "__main__":
    sys.exit(main())
