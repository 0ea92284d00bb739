"""What `up` becomes when all is prepared: one small loop that starts children, keeps them alive, ends them in order."""

import contextlib
import http.client
import os
import selectors
import signal
import sys
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, time
from typing import Any

from agentruns.supervision import embedded, log
from agentruns.supervision.child import Child, Post

ME = "up"
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
QUICK_SECONDS, CALM_SECONDS = 0.1, 1.0
SLOW_START_SECONDS = 20.0
# After a second Ctrl-C. RQ takes a signal that comes within a second of the first for the same one; then a worker needs
# a moment to take its horse with it, and to write what that leaves.
DEAF_SECONDS, LAST_WORDS_SECONDS = 1.2, 5.0


@dataclass(frozen=True)
class Order:
    """All that the household needs to know; written by `up`, as JSON, into its environment."""

    posts: list[dict[str, Any]]
    host: str
    port: int
    address: str
    lock: int
    redis_socket: str
    began_at: float
    browser: bool


class Household:
    def __init__(self, order: Order, env: dict[str, str]) -> None:
        self.order = order
        self.children = [Child(Post(**post), env) for post in order.posts]
        self.selector = selectors.DefaultSelector()
        self.is_ready = self.is_late = self.is_draining = False
        self.asked = 0
        self.killed_at: float | None = None
        self.is_killing = False

    def run(self) -> int:
        """Until it was asked to stop and every child has ended. Returns the exit code."""
        self.listen_to_signals()
        while not (self.asked and not any(child.process for child in self.children)):
            self.mourn()
            self.drain() if self.asked else self.raise_children()
            if not self.is_ready and not self.asked:
                self.look_whether_ready()
            self.hear(QUICK_SECONDS if self.is_busy() else CALM_SECONDS)
        self.hear(0)
        os.ftruncate(self.order.lock, 0)
        embedded.tidy(self.order.redis_socket)
        log.say(ME, "Stopped.")
        return 0

    def is_busy(self) -> bool:
        return not self.is_ready or bool(self.asked) or any(child.process is None for child in self.children)

    # --- signals and voices -----------------------------------------------------------------------------------------

    def listen_to_signals(self) -> None:
        wakes, woken = os.pipe()
        os.set_blocking(wakes, False)
        os.set_blocking(woken, False)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        self.selector.register(wakes, selectors.EVENT_READ, None)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in STOPPING:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup means it
                signal.signal(number, self.stop)

    def stop(self, *_signal: Any) -> None:
        self.asked += 1

    def hear(self, seconds: float) -> None:
        for key, _ in self.selector.select(seconds):
            if isinstance(key.data, log.Voice):
                if not key.data.speak():
                    self.selector.unregister(key.fd)
            elif isinstance(key.data, Child):
                key.data.is_ready = bool(os.read(key.fd, 1)) or key.data.is_ready
                self.selector.unregister(key.fd)
                os.close(key.fd)
            else:
                os.read(key.fd, 512)

    # --- while all is well --------------------------------------------------------------------------------------------

    def raise_children(self) -> None:
        for child in self.children:
            if child.is_due():
                self.start(child)

    def start(self, child: Child) -> None:
        try:
            output, word = child.start()
        except OSError as error:
            pause = child.start_later()
            log.say(ME, f"{child.post.name} cannot be started ({error.strerror}); trying again in {pause:g} s.")
            return
        self.selector.register(output, selectors.EVENT_READ, log.Voice(child.post.name, output))
        self.selector.register(word, selectors.EVENT_READ, child)
        if self.is_ready:
            log.say(ME, f"{child.post.name} is process {child.pid}.")

    def mourn(self) -> None:
        for child in self.children:
            pid = child.pid
            if how := child.has_died():
                if self.asked:
                    continue
                pause = child.start_later()
                log.say(ME, f"{child.post.name} (process {pid}) {how}; starting it again in {pause:g} s.")

    def look_whether_ready(self) -> None:
        missing = [child.post.name for child in self.children if not child.is_ready]
        if self.order.redis_socket and not embedded.answers(Path(self.order.redis_socket)):
            missing.append("redis")
        if not missing and not self.web_answers():
            missing.append("web")
        took = time() - self.order.began_at
        if not missing:
            self.is_ready = True
            processes = ", ".join(f"{child.post.name} {child.pid}" for child in self.children)
            log.say(ME, f"Ready in {took:.1f} s: {self.order.address}  Ctrl-C drains and stops.")
            log.say(ME, f"Processes: {processes}.")
            if self.order.browser:
                webbrowser.open(self.order.address)
        elif took > SLOW_START_SECONDS and not self.is_late:
            self.is_late = True
            log.say(ME, f"Still waiting for {', '.join(missing)}.")

    def web_answers(self) -> bool:
        """Any answer counts: which hosts it lets in is its own affair."""
        client = http.client.HTTPConnection(self.order.host, self.order.port, timeout=5)
        with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(client):  # not yet
            client.request("GET", "/healthz")
            return client.getresponse().status < 500
        return False

    # --- the end ------------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Asks those to end whose turn it is; a second signal ends all of them now."""
        living = [child for child in self.children if child.process]
        if self.asked > 1:
            return self.kill(living)
        if not self.is_draining:
            self.is_draining = True
            log.say(ME, "Draining: steps at work come to a boundary. Once more to stop at once.")
        turn = min((child.post.leaves for child in living), default=0)
        for child in living:
            if child.post.leaves == turn:
                child.ask_to_end()
        return None

    def kill(self, living: list[Child]) -> None:
        """A worker takes its horse with it at a second SIGTERM; those that it needs for that go last."""
        turn = min(child.post.leaves for child in living) if living else 0
        if self.killed_at is None:
            log.say(ME, "Stopping at once.")
            self.killed_at = max([monotonic(), *(child.asked_at + DEAF_SECONDS for child in living if child.asked_at)])
        elif not self.is_killing and monotonic() >= self.killed_at:
            self.is_killing = True
            for child in living:
                if child.post.leaves == turn:
                    child.send(signal.SIGTERM)
        elif turn > 0 or monotonic() > self.killed_at + LAST_WORDS_SECONDS:
            for child in living:
                child.kill()


def main() -> int:
    import json

    order = Order(**json.loads(os.environ.pop("AGENTRUNS_ORDER")))
    return Household(order, dict(os.environ)).run()


if __name__ == "__main__":
    sys.exit(main())
