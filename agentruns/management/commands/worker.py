"""`manage.py worker`: one worker in the foreground; SIGTERM or Ctrl-C drains it."""

from typing import Any

from agentruns import tether
from agentruns.management.command import refuse_wrong_schema
from agentruns.management.staying import StayingCommand
from agentruns.supervision.work import work


class Command(StayingCommand):
    help = "Runs one worker in the foreground. SIGTERM or Ctrl-C: it stops at the next boundary; a second one kills."

    def handle(self, *args: Any, **options: Any) -> None:
        tether.to_starter()
        refuse_wrong_schema()
        work()
