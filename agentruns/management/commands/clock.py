"""`manage.py clock`: one clock in the foreground; any number may run."""

import signal
import threading
from typing import Any

from agentruns import clock, tether
from agentruns.management.command import refuse_wrong_schema
from agentruns.management.staying import StayingCommand
from agentruns.supervision import ready


class Command(StayingCommand):
    help = "Wakes, rescues, polls and sweeps, in the foreground, until SIGTERM or Ctrl-C."

    def handle(self, *args: Any, **options: Any) -> None:
        tether.to_starter()
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        refuse_wrong_schema()
        ready.announce()
        clock.run(stop)
