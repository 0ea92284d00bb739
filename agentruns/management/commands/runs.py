"""`manage.py runs`: the runs, newest first."""

import json
from argparse import ArgumentParser
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from agentruns.errors import Refusal
from agentruns.management import command
from agentruns.management.terminal import DEMO, table
from agentruns.models import Run, Status
from agentruns.models.portrait import head
from agentruns.web.words import between, usd

SHOWN = 50


class Command(command.Command):
    help = "Lists runs, newest first: for people the 50 newest, with --json all of them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--status", help=f"only those: {', '.join(Status.values)}")
        parser.add_argument("--limit", help="at most so many")
        parser.add_argument("--json", action="store_true", help="as a JSON array")

    def handle(self, *args: Any, **options: Any) -> None:
        limit = limit_of(options["limit"])
        runs = asked(options["status"])
        if options["json"]:
            self.write_json(runs[:limit] if limit else runs)
        else:
            self.write_table(runs, limit or SHOWN)

    def write_json(self, runs: "QuerySet[Run]") -> None:
        """A row at a time: a million runs are not held in memory."""
        self.stdout.write("[", ending="")
        separator = "\n"
        for run in runs.iterator(chunk_size=500):
            self.stdout.write(separator + json.dumps(head(run)), ending="")
            separator = ",\n"
        self.stdout.write("\n]")

    def write_table(self, runs: "QuerySet[Run]", limit: int) -> None:
        shown = list(runs[: limit + 1])
        if not shown:
            self.note("No runs. Start one: manage.py submit report 'What to write about'")
            return
        columns = ("ID", "STATUS", "PLAN", ">COST", ">BUDGET", ">AGE", "BY", "", "TASK")
        self.stdout.write(table(columns, [row(run) for run in shown[:limit]]))
        if len(shown) > limit:
            self.note(f"The {limit} newest; --limit N shows more.")
        if any(run.is_demo for run in shown[:limit]):
            self.note(DEMO)


def asked(status: str | None) -> "QuerySet[Run]":
    runs = Run.objects.select_related("owner").defer("task", "params").order_by("-created_at", "-pk")
    if status is None:
        return runs
    if status not in Status.values:
        raise Refusal(f"There is no status {status[:40]!r}. One of: {', '.join(Status.values)}.")
    return runs.filter(status=status)


def limit_of(typed: str | None) -> int:
    """0: no limit was given."""
    if typed is None:
        return 0
    if typed.isdecimal() and 0 < int(typed) < 10**9:
        return int(typed)
    raise Refusal(f"--limit is {typed[:40]!r}: give a whole number above 0.")


def row(run: Run) -> tuple[object, ...]:
    status = f"{run.status}: {run.waiting_for}" if run.waiting_for else run.status
    return (
        run.short_id, status, run.plan, usd(run.spent), usd(run.budget), between(run.created_at, timezone.now()),
        run.owner.get_username() if run.owner else "", "DEMO" if run.is_demo else "", run.title,
    )  # fmt: skip
