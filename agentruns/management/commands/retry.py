"""`manage.py retry ID`: a failed run goes on."""

from argparse import ArgumentParser
from typing import Any

from agentruns.management import command
from agentruns.models import Run


class Command(command.Command):
    help = "Retries a failed run from its finished steps, which are neither run nor paid again."

    def add_arguments(self, parser: ArgumentParser) -> None:
        command.add_id(parser)
        command.add_by(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        by = command.user_called(options["by"])
        run = command.run_called(options["id"], by)
        run.retry(by=by)
        finished = run.steps.filter(kind="step").count()
        self.stdout.write(f"Run {run.short_id} goes on; finished steps kept: {finished}.")
        self.note_delay(Run.objects.get(pk=run.pk))
