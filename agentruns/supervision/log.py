"""What children print, line by line, each with the name of who said it."""

import os
import sys

WIDTH = 9
LONGEST_LINE = 64 * 1024


def say(name: str, text: str) -> None:
    """One line on our standard output; when nobody reads it any more, nothing."""
    try:
        sys.stdout.write(f"{name:<{WIDTH}}| {text}\n")
        sys.stdout.flush()
    except OSError:  # the terminal or the pager is gone: that must not end what works
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115


class Voice:
    """The reading end of a child's output."""

    def __init__(self, name: str, fd: int) -> None:
        self.name, self.fd = name, fd
        self._rest = b""
        os.set_blocking(fd, False)

    def speak(self) -> bool:
        """Prints the lines that are whole; False when there will be no more."""
        try:
            heard = os.read(self.fd, 65536)
        except BlockingIOError:
            return True
        *lines, self._rest = (self._rest + heard).split(b"\n")
        if self._rest and (not heard or len(self._rest) > LONGEST_LINE):
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            say(self.name, line.decode(errors="replace"))
        if not heard:
            os.close(self.fd)
        return bool(heard)
