"""`manage.py answer ID PATH TEXT --by USER`: answers the question that waits at PATH."""

from argparse import ArgumentParser
from typing import Any

from agentruns.management import command
from agentruns.models import Run


class Command(command.Command):
    help = "Answers the question that waits at PATH."

    def add_arguments(self, parser: ArgumentParser) -> None:
        command.add_id(parser)
        parser.add_argument("path", metavar="PATH", help="where it waits, as `run ID` shows it")
        parser.add_argument("text", metavar="TEXT", help="the answer")
        command.add_by(parser, required=True)

    def handle(self, *args: Any, **options: Any) -> None:
        by = command.user_called(options["by"])
        run = command.run_called(options["id"], by)
        run.answer(options["path"], options["text"], by)
        self.stdout.write(f"{options['path']} of run {run.short_id} is answered.")
        self.note_delay(Run.objects.get(pk=run.pk))
