"""`manage.py resume [ID]`: what was paused goes on."""

from argparse import ArgumentParser
from typing import Any

from agentruns.management import command
from agentruns.models import Halt, Run


class Command(command.Command):
    help = "Lets a paused run go on; without an id, all work that was paused so."

    def add_arguments(self, parser: ArgumentParser) -> None:
        command.add_id(parser, optional=True)
        command.add_by(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        by = command.user_called(options["by"])
        if options["id"] is None:
            command.check_may(by, "agentruns.pause_all", "resume all work")
            Halt.end(by)
            self.stdout.write("Work goes on.")
            return
        run = command.run_called(options["id"], by)
        run.resume(by)
        run = Run.objects.get(pk=run.pk)
        waits = f", and waits for {run.waiting_for}" if run.waiting_for else ""
        self.stdout.write(f"Run {run.short_id} goes on{waits}.")
        self.note_delay(run)
