"""`manage.py fork ID --from PATH`: from this step again, as a new run."""

from argparse import ArgumentParser
from typing import Any

from agentruns.management import command
from agentruns.models import Run


class Command(command.Command):
    help = "Starts a new run that keeps what was finished before PATH; prints its id. `preview ID --from PATH` first."

    def add_arguments(self, parser: ArgumentParser) -> None:
        command.add_id(parser)
        parser.add_argument("--from", dest="path", metavar="PATH", required=True, help="the first path to run again")
        command.add_by(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        by = command.user_called(options["by"])
        origin = command.run_called(options["id"], by)
        fork = origin.fork(options["path"], by=by)
        self.stdout.write(str(fork.pk))
        kept = list(fork.steps.all())
        if effects := origin.effects_from(kept):
            self.note(f"It asks a person before it does these effects again: {', '.join(effects)}")
        self.note_delay(Run.objects.get(pk=fork.pk))
