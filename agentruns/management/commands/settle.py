"""`manage.py settle ID PATH --done JSON | --not-done | --again`: a person's word on an unknown effect or call."""

import json
from argparse import ArgumentParser
from typing import Any

from agentruns.errors import Refusal
from agentruns.management import command
from agentruns.models import Run


class Command(command.Command):
    help = "Says what became of an effect or a call whose outcome is unknown; the run goes on by it. Audited."

    def add_arguments(self, parser: ArgumentParser) -> None:
        command.add_id(parser)
        parser.add_argument("path", metavar="PATH", help="of the effect or call, as `run ID` shows it")
        words = parser.add_mutually_exclusive_group(required=True)
        words.add_argument("--done", metavar="JSON", help="it happened, and this was its answer (null: none)")
        words.add_argument("--not-done", action="store_true", help="it did not happen: it may be sent")
        words.add_argument("--again", action="store_true", help="nobody knows: send it again under the same key")
        command.add_by(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        by = command.user_called(options["by"])
        run = command.run_called(options["id"], by)
        word = "not-done" if options["not_done"] else "again" if options["again"] else "done"
        run.settle(options["path"], word, answer_of(options["done"]), by=by)
        self.stdout.write(f"{options['path']} of run {run.short_id} is settled: {word}.")
        self.note_delay(Run.objects.get(pk=run.pk))


def answer_of(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        raise Refusal(f"--done {text!r:.60} is not JSON. Give the answer as JSON: null, 7, or a quoted text.") from None
