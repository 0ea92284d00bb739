"""`manage.py cancel ID`: ends a run, or asks its worker to."""

from argparse import ArgumentParser
from typing import Any

from agentruns.management import command


class Command(command.Command):
    help = "Cancels a run: at once if it is queued or waiting, at the next boundary if it is running."

    def add_arguments(self, parser: ArgumentParser) -> None:
        command.add_id(parser)
        command.add_by(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        by = command.user_called(options["by"])
        run = command.run_called(options["id"], by)
        if run.cancel(by=by):
            self.stdout.write(f"Run {run.short_id} is cancelled. Its finished steps are kept.")
        else:
            self.stdout.write(f"Run {run.short_id} is told to stop; it ends before anything new begins.")
