"""`manage.py approve ID PATH --by USER`: says yes to exactly what waits at PATH; good for 24 h and one use."""

from argparse import ArgumentParser
from typing import Any

from agentruns.management import command
from agentruns.models import Run


class Command(command.Command):
    help = "Says yes to exactly what waits at PATH; good for 24 h and one use."

    def add_arguments(self, parser: ArgumentParser) -> None:
        command.add_id(parser)
        parser.add_argument("path", metavar="PATH", help="where it waits, as `run ID` shows it")
        command.add_by(parser, required=True)

    def handle(self, *args: Any, **options: Any) -> None:
        by = command.user_called(options["by"])
        run = command.run_called(options["id"], by)
        run.approve(options["path"], by)
        self.stdout.write(f"{options['path']} of run {run.short_id} is approved.")
        self.note_delay(Run.objects.get(pk=run.pk))
