"""`manage.py pause [ID]`: one run, or all new work: the stop button."""

from argparse import ArgumentParser
from typing import Any

from agentruns.management import command
from agentruns.models import Halt


class Command(command.Command):
    help = "Pauses a run; without an id, all new work. What is at work stops at its next boundary; nothing is lost."

    def add_arguments(self, parser: ArgumentParser) -> None:
        command.add_id(parser, optional=True)
        command.add_by(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        by = command.user_called(options["by"])
        if options["id"] is None:
            command.check_may(by, "agentruns.pause_all", "pause all work")
            was = "" if Halt.begin(by) else " already"
            self.stdout.write(f"All new work is paused{was}. It goes on by: manage.py resume")
            return
        run = command.run_called(options["id"], by)
        if run.pause(by):
            self.stdout.write(f"Run {run.short_id} is paused. It goes on by: manage.py resume {run.short_id}")
        else:
            self.stdout.write(f"Run {run.short_id} is told to pause; it stops before anything new begins.")
