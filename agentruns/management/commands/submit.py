"""`manage.py submit PLAN TASK`: starts a run; with --wait, follows it to its end."""

import json
import sys
from argparse import ArgumentParser
from typing import Any, cast

from agentruns.errors import Refusal
from agentruns.management import command, follow
from agentruns.management.terminal import DEMO
from agentruns.models import Run, Status
from agentruns.models.outbox import MAIL
from agentruns.models.portrait import portrait


class Command(command.Command):
    help = "Starts a run of PLAN for TASK and prints its id. With --wait: exit 0 only if it completed."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("plan", metavar="PLAN", help="the plan's name, such as report")
        parser.add_argument("task", metavar="TASK", help="what to do, in words; - reads it from standard input")
        parser.add_argument("--params", metavar="JSON", help="more input, as a JSON object")
        parser.add_argument("--budget", metavar="USD", help="what it may spend; else the plan's, or AGENT_BUDGET_USD")
        parser.add_argument("--key", help="the same key with the same input returns the same run: safe to repeat")
        parser.add_argument("--model", help="else AGENT_MODEL, or the demo model")
        parser.add_argument("--by", metavar="USER", help="the account that owns the run")
        parser.add_argument("--mail", action="store_true", help="mail its owner when it needs a person, or ends")
        parser.add_argument("--wait", action="store_true", help="follow it on stderr until it ends")
        parser.add_argument("--json", action="store_true", help="print the run as JSON instead of its id")

    def handle(self, *args: Any, **options: Any) -> None:
        run = Run.start(
            options["plan"], task_of(options["task"]), params=params_of(options["params"]), budget=options["budget"],
            key=options["key"], model=options["model"], owner=command.user_called(options["by"]),
            notify=[MAIL] if options["mail"] else [],
        )  # fmt: skip
        if run.is_demo:
            self.note(DEMO)
        self.note_delay(run)
        if not options["json"]:
            self.stdout.write(str(run.pk))
            self.stdout.flush()
        if options["wait"]:
            run = self.wait(run)
        if options["json"]:
            self.stdout.write(json.dumps(portrait(run), indent=2))
        if options["wait"] and run.status != Status.COMPLETED:
            sys.exit(1)

    def wait(self, run: Run) -> Run:
        try:
            return follow.follow(run)
        except KeyboardInterrupt:
            self.note(
                f"The run goes on without you. See it: manage.py run {run.short_id}  "
                f"End it: manage.py cancel {run.short_id}"
            )
            sys.exit(command.INTERRUPTED)


def task_of(typed: str) -> str:
    """The task as typed, or from standard input for "-", there without the line end that `echo` adds."""
    if typed != "-":
        return typed
    if sys.stdin.isatty():
        sys.stderr.write("The task, then Ctrl-D:\n")
    stream = getattr(sys.stdin, "buffer", None)
    if stream is None:
        return sys.stdin.read().rstrip("\n")
    try:
        return cast(str, stream.read().decode().rstrip("\n"))
    except UnicodeDecodeError as error:
        raise Refusal(f"The task on standard input is not UTF-8 text (byte {error.start}). Convert it first.") from None


def params_of(typed: str | None) -> Any:
    """The JSON that was typed; what it must be is Run.start's to say."""
    if typed is None:
        return None
    try:
        return json.loads(typed)
    except (ValueError, RecursionError) as error:
        raise Refusal(
            f'--params is no JSON ({error}). Give an object, quoted for the shell: --params \'{{"language": "en"}}\''
        ) from None
