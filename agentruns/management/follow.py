"""A run followed on stderr until it ends. It reads the database only, and outlasts restarts of everything."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from django.db import InterfaceError, OperationalError, connection
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from agentruns.management.terminal import line
from agentruns.models import Run, Status
from agentruns.models.portrait import StepLine, steps
from agentruns.web.events import sentence
from agentruns.web.words import between, usd

POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Look:
    """The run as it is now, its lines, and what has happened since the last look."""

    run: Run
    lines: list[StepLine]
    happened: list[str]

    @property
    def tops(self) -> list[StepLine]:
        return [one for one in self.lines if one.depth == 0]


def follow(run: Run) -> Run:
    """Shows the run's way on stderr, as a bar on a terminal, else as lines; returns it when it has ended."""
    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    show: Any = Bar if console.is_terminal else Lines
    with show(console) as shown:
        for look in looks(run.pk, shown.say):
            for happened in look.happened:
                shown.say(happened)
            shown.draw(look)
    shown.say(ending(look.run))
    return look.run


def looks(pk: Any, say: Callable[[str], None]) -> Iterator[Look]:
    """A look each time the run has changed, until it ends. A database that is away is waited for, and said once."""
    version, finished, is_away = 0, set[str](), False
    while True:
        try:
            run = Run.objects.defer("task", "params").get(pk=pk)
            look = look_at(run, version, finished) if run.version != version else None
        except (OperationalError, InterfaceError) as error:
            connection.close()
            if not is_away:
                say(f"The database does not answer ({line(error)}); trying again. The run is safe in it.")
            is_away, look = True, None
        else:
            if is_away:
                say("The database is back.")
            is_away = False
        if look:
            version = look.run.version
            finished |= {one.path for one in look.tops if one.status == "finished"}
            yield look
            if look.run.is_ended:
                return
        time.sleep(POLL_SECONDS)


def look_at(run: Run, version: int, finished: set[str]) -> Look:
    found = steps(run)
    events = run.events.filter(version__gt=version, version__lte=run.version).select_related("by").order_by("pk")
    told = [sentence(event) for event in events if event.kind not in {"started", "completed", "failed"}]
    done = [done_line(one) for one in found if one.depth == 0 and one.status == "finished" and one.path not in finished]
    return Look(run, found, [*(f"{one.lead}{one.rest}" for one in told), *done])


def done_line(step: StepLine) -> str:
    time_taken = f" in {between(step.started_at, step.finished_at)}" if step.started_at else ""
    return f"{step.title}: done{time_taken}, {usd(step.cost)}"


def doing(look: Look) -> str:
    """What is going on, in a few words."""
    at = next((one for one in look.tops if one.status not in {"finished", "to_come"}), None)
    if look.run.cancel_requested_at and not look.run.is_ended:
        return "stopping"
    if at is None:
        return "waiting for a worker" if look.run.status == Status.QUEUED else str(look.run.status)
    return f"{at.title}: waiting for {at.waiting}" if at.waiting else f"{at.title}: {at.status}"


def ending(run: Run) -> str:
    took = f" in {between(run.created_at, run.ended_at)}, {usd(run.spent)} of {usd(run.budget)}."
    if run.status == Status.COMPLETED:
        return f"Completed{took}"
    if run.status == Status.FAILED:
        return f"Failed{took} {line(run.reason)} To go on from its finished steps: manage.py retry {run.short_id}"
    return f"Cancelled{took} Finished steps are kept."


class Lines:
    """For a log or a pipe: a line for each thing that happens."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.last = ""

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def say(self, words: str) -> None:
        self.console.print(line(words))

    def draw(self, look: Look) -> None:
        done = sum(one.status == "finished" for one in look.tops)
        words = f"{done}/{len(look.tops)} steps, {usd(look.run.spent)}, {doing(look)}"
        if words != self.last and not look.run.is_ended:
            self.say(words)
        self.last = words


class Bar:
    """For a terminal: what happened scrolls above one live bar."""

    def __init__(self, console: Console) -> None:
        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f}/{task.total:.0f} steps  {task.fields[cost]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self.row: TaskID | None = None

    def __enter__(self) -> "Bar":
        self.progress.start()
        self.row = self.progress.add_task("waiting for a worker", total=1, cost="")
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def say(self, words: str) -> None:
        self.progress.console.print(line(words))

    def draw(self, look: Look) -> None:
        assert self.row is not None
        done = sum(one.status == "finished" for one in look.tops)
        self.progress.update(
            self.row, description=line(doing(look)), completed=done, total=len(look.tops), cost=usd(look.run.spent)
        )
