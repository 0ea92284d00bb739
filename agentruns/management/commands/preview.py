"""`manage.py preview ID [--from PATH]`: what going on, or a fork, would reuse and run, with prices."""

from argparse import ArgumentParser
from typing import Any

from agentruns.management import command
from agentruns.models.preview import preview
from agentruns.plan import plans
from agentruns.web.words import usd


class Command(command.Command):
    help = "Shows what a retry (or, with --from, a fork) would reuse, and what it would run and is likely to cost."

    def add_arguments(self, parser: ArgumentParser) -> None:
        command.add_id(parser)
        parser.add_argument("--from", dest="path", metavar="PATH", help="as if it were forked from there")

    def handle(self, *args: Any, **options: Any) -> None:
        run = command.run_called(options["id"], None)
        lines = preview(run, options["path"])
        for one in lines:
            likely = "" if one.likely is None else f"about {usd(one.likely)}"
            price = usd(one.cost) if one.verdict in {"reused", "renamed", "orphaned"} else likely
            self.stdout.write(f"{one.verdict:9} {one.path:40} {price}")
        kept = run.inherited_by_fork(plans.get(run.plan), options["path"]) if options["path"] else None
        if kept is not None and (effects := run.effects_from(kept)):
            self.note(f"A fork asks a person before it does again: {', '.join(effects)}")
