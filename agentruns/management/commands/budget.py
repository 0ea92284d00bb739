"""`manage.py budget ID USD`: what a run may spend from now on, all in all."""

from argparse import ArgumentParser
from typing import Any

from agentruns.management import command
from agentruns.models import Run
from agentruns.web.words import usd


class Command(command.Command):
    help = "Sets a run's budget; a run that waited for it goes on."

    def add_arguments(self, parser: ArgumentParser) -> None:
        command.add_id(parser)
        parser.add_argument("usd", metavar="USD", help="the whole budget of the run, not what is added to it")
        command.add_by(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        by = command.user_called(options["by"])
        run = command.run_called(options["id"], by)
        run.change_budget(options["usd"], by=by)
        changed = Run.objects.get(pk=run.pk)
        self.stdout.write(f"Run {run.short_id} may spend {usd(changed.budget)}; {usd(changed.spent)} is spent.")
        self.note_delay(changed)
