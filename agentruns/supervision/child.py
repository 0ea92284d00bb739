"""One process that is kept alive: started, listened to, started again when it dies, asked to end."""

import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from time import monotonic

from agentruns import tether
from agentruns.supervision import ready

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 30.0
HEALTHY_SECONDS = 60.0


@dataclass(frozen=True)
class Post:
    """What a child is to be: a value that `up` writes and the household reads."""

    name: str
    argv: list[str]
    leaves: int  # the turn in which it is asked to end: those that use others leave before them
    grace: float  # seconds that it has for it
    announces: bool = True  # whether it says itself when it is at work
    keeps: list[int] = field(default_factory=list)  # file descriptors that it is handed


class Child:
    """The living process of a Post, or the pause before the next one."""

    def __init__(self, post: Post, env: dict[str, str]) -> None:
        self.post, self.env = post, env
        self.process: subprocess.Popen[bytes] | None = None
        self.is_ready = False
        self.starts_at: float | None = 0.0
        self.asked_at: float | None = None
        self._pause = FIRST_PAUSE_SECONDS
        self._started_at = 0.0

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process else None

    def start(self) -> tuple[int, int]:
        """Starts it in a session of its own, so that the terminal's Ctrl-C reaches only the household.

        Returns what to read: its output, and the pipe on which it announces that it is at work. Raises OSError.
        """
        self.starts_at, self._started_at = None, monotonic()
        self.is_ready = not self.post.announces
        output, its_output = os.pipe()
        word, its_word = os.pipe()
        me = os.getpid()
        env = self.env | {tether.VARIABLE: str(me), ready.VARIABLE: str(its_word)}
        try:
            self.process = subprocess.Popen(
                self.post.argv, stdin=subprocess.DEVNULL, stdout=its_output, stderr=its_output, env=env,
                start_new_session=True, pass_fds=[*self.post.keeps, its_word],
                # Programs that are not ours know nothing of a tether. This household has one thread: a fork is safe.
                preexec_fn=(lambda: tether.to_parent(me)) if sys.platform == "linux" else None,
            )  # fmt: skip
        finally:
            os.close(its_output)
            os.close(its_word)
        return output, word

    def has_died(self) -> str | None:
        """How it ended, once; None while it lives."""
        if self.process is None or (code := self.process.poll()) is None:
            return None
        if monotonic() - self._started_at > HEALTHY_SECONDS:
            self._pause = FIRST_PAUSE_SECONDS
        self.process, self.is_ready = None, False
        return f"was killed (signal {-code})" if code < 0 else f"ended (exit code {code})"

    def start_later(self) -> float:
        """Returns in how many seconds: twice as many each time, until it has lived for a minute."""
        pause = self._pause
        self.starts_at = monotonic() + pause
        self._pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
        return pause

    def is_due(self) -> bool:
        return self.process is None and self.starts_at is not None and monotonic() >= self.starts_at

    def ask_to_end(self) -> None:
        """SIGTERM, once; after its grace, SIGKILL to all of its session that it leads."""
        if self.asked_at is None:
            self.asked_at = monotonic()
            self.send(signal.SIGTERM)
        elif monotonic() - self.asked_at > self.post.grace:
            self.kill()

    def kill(self) -> None:
        if self.process is not None:
            with contextlib.suppress(OSError):  # gone already
                os.killpg(self.process.pid, signal.SIGKILL)

    def send(self, number: int) -> None:
        if self.process is not None:
            self.process.send_signal(number)
