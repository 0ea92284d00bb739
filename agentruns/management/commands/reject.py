"""`manage.py reject ID PATH --reason TEXT --by USER`: says no to what waits at PATH."""

from argparse import ArgumentParser
from typing import Any

from agentruns.management import command
from agentruns.models import Run


class Command(command.Command):
    help = "Says no to what waits at PATH; the step that asked is told why."

    def add_arguments(self, parser: ArgumentParser) -> None:
        command.add_id(parser)
        parser.add_argument("path", metavar="PATH", help="where it waits, as `run ID` shows it")
        parser.add_argument("--reason", metavar="TEXT", required=True, help="why; the step, and the model, are told")
        command.add_by(parser, required=True)

    def handle(self, *args: Any, **options: Any) -> None:
        by = command.user_called(options["by"])
        run = command.run_called(options["id"], by)
        run.reject(options["path"], by, options["reason"])
        self.stdout.write(f"{options['path']} of run {run.short_id} is rejected.")
        self.note_delay(Run.objects.get(pk=run.pk))
