"""A fan-out: one durable sub-step an item, named by its data, all of them started before any is waited for.

Each pass over a map enters what can go on, and leaves by a Parked while anything is open. Finished items come from
their checkpoints; items that only wait are not entered; a failed item is tried again alone.
"""

import hashlib
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

from django.conf import settings
from django.db import connection
from django.utils import timezone

from agentruns import encoding, trust
from agentruns.branch import Branch
from agentruns.entry import Entry, checkpoint_row
from agentruns.errors import Interruption, ItemFailed, MisusedContext, Parked
from agentruns.models import Wait
from agentruns.models.moment import now
from agentruns.outcome import pause_after, wait_for
from agentruns.plan import PATH_LENGTH

ITEM_NAME = re.compile(r"[a-z0-9-]{1,40}")
JOIN_SECONDS = 0.2

# Runs the author's function for an item in a ctx of its own; returns its value and labels.
Call = Callable[[Entry, str, Any], tuple[Any, set[str]]]


def item_name(item: Any, key: Callable[[Any], Any] | None) -> str:
    """Letters, digits and hyphens of the item's own text or `key`; outside text is never a name as it came."""
    text = str(key(item)) if key else item if isinstance(item, str) else encoding.canonical(item)
    if ITEM_NAME.fullmatch(text):
        return text
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:31].strip("-")
    return f"{plain}-{hashlib.sha256(encoding.canonical(item).encode()).hexdigest()[:8]}".strip("-")


class Mapping:
    """The map at `path` (`step/name`) of `entry`."""

    def __init__(self, entry: Entry, path: str, items: list[Any], key: Any, call: Call) -> None:
        self.entry, self.call = entry, call
        self.items = list(items)
        self.paths = [self._path(path, item, key) for item in self.items]
        self.by_path = self._unique()
        self.guard = threading.Lock()
        self.waits: list[Wait] = []
        self.finished: dict[str, tuple[Any, set[str]]] = {}
        self.failures: dict[str, Exception] = {}
        self.interruption: Interruption | None = None

    def _path(self, path: str, item: Any, key: Any) -> str:
        named = f"{path}:{item_name(item, key)}"
        if len(named) > PATH_LENGTH:
            raise MisusedContext(f"The path {named[:60]}… has {len(named)} characters; {PATH_LENGTH} is the limit.")
        return named

    def _unique(self) -> dict[str, Any]:
        """Equal items are one sub-step."""
        found: dict[str, Any] = {}
        for path, item in zip(self.paths, self.items, strict=True):
            text = encoding.dumps(item, exact=True)
            if encoding.dumps(found.setdefault(path, item)) != text:
                raise MisusedContext(
                    f"Two different items are called {path.rsplit(':', 1)[1]!r}; give them another key=."
                )
        return found

    # --- one pass -------------------------------------------------------------------------------------------------

    def results(self) -> tuple[list[Any], set[str]]:
        """The items' values, in their order, and the labels of all. Leaves by a Parked while anything is open; then
        raises ItemFailed for the first that failed."""
        with self.entry.ours():
            todo, still = self.todo()
        self.enter(todo)
        with self.entry.ours():
            if self.interruption is not None:
                self.entry.close(self.interruption)
            if self.waits or still:
                self.park()
            for path in self.paths:
                if path in self.failures:
                    raise ItemFailed(self.by_path[path], self.failures[path]) from self.failures[path]
            return self.collected()

    def todo(self) -> tuple[list[str], bool]:
        """What to enter now, and whether other items wait for something that will come."""
        unfinished = [path for path in self.by_path if path not in self.entry.steps]
        waiting, pausing = self.waiting(unfinished)
        if not waiting:  # only pauses of failed items: the step itself is tried again by now
            Wait.objects.filter(pk__in=[wait.pk for wait in pausing.values()]).update(closed_at=now())
            pausing = {}
        return [path for path in unfinished if path not in waiting and path not in pausing], bool(waiting)

    def waiting(self, paths: list[str]) -> tuple[set[str], dict[str, Wait]]:
        """Items that only wait, and those that failed and pause. One that maps itself is entered: its own map knows."""
        open_waits = Wait.objects.filter(run=self.entry.run, closed_at=None).exclude(until__lte=now())
        waiting: set[str] = set()
        pausing: dict[str, Wait] = {}
        known = set(paths)
        for wait in open_waits.filter(path__startswith=f"{self.entry.path}/"):
            path = next((one for one in ancestors(wait.path) if one in known), None)
            if path is None or ":" in wait.path[len(path) :]:
                continue
            if wait.path == path and wait.kind == "retry":
                pausing[path] = wait
            else:
                waiting.add(path)
        return waiting, pausing

    def enter(self, paths: list[str]) -> None:
        """Runs the items' functions, in at most AGENT_THREADS threads; in a map within a map in this one."""
        queue = iter(paths)
        if isinstance(self.entry, Branch):
            self.work(queue)
            return
        threads = [
            threading.Thread(target=self.work_apart, args=(queue,), name=f"item-{number}", daemon=True)
            for number in range(min(settings.AGENT_THREADS or 1, len(paths)))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():  # in pieces: an exception for this thread is raised between two
                thread.join(JOIN_SECONDS)

    def work_apart(self, queue: Iterator[str]) -> None:
        try:
            self.work(queue)
        finally:
            connection.close()

    def work(self, queue: Iterator[str]) -> None:
        while True:
            with self.guard:
                path = None if self.is_over() else next(queue, None)
            if path is None:
                return
            self.one(path)

    def is_over(self) -> bool:
        """Whether what ended one item, or the whole entry, ends all."""
        return self.interruption is not None or self.entry.closed is not None

    def one(self, path: str) -> None:
        branch = Branch(self.entry)
        began = timezone.now()
        try:
            branch.boundary()
            value, labels = self.call(branch, path, self.by_path[path])
            branch.check()
            row = checkpoint_row(branch, path, "part", value, labels, began)
            with branch.ours():
                branch.checkpoint_part(row)
            self.finished[path] = value, labels
        except Interruption as why:
            self.left(branch, branch.closed or why)
        except Exception as failure:
            self.left(branch, branch.closed)
            if branch.closed is None:
                self.failures[path] = failure
        except BaseException as failure:  # SystemExit and its like: the function's, not ours
            self.failures[path] = RuntimeError(f"{type(failure).__name__}: {failure}")

    def left(self, branch: Branch, why: Interruption | None) -> None:
        """What an unfinished item leaves: rows that it learned, and what it waits for."""
        with self.guard:
            self.entry.pending.extend(branch.unsaved())
            if isinstance(why, Parked):
                self.waits += [wait for wait in why.waits if isinstance(wait, Wait)]
            elif why is not None:
                self.interruption = self.interruption or why

    # --- its end --------------------------------------------------------------------------------------------------

    def park(self) -> None:
        """Until something comes. What failed meanwhile pauses, and does not stop the others."""
        pauses = [wait_for(path, "retry", seconds=pause_after(self.entry.run.failures)) for path in self.failures]
        reason = next((reason for wait in self.waits if (reason := (wait.payload or {}).get("reason"))), "")
        self.entry.close(Parked(*self.waits, *pauses, reason=reason))

    def collected(self) -> tuple[list[Any], set[str]]:
        for path in self.by_path:
            if path not in self.finished:
                row = self.entry.replayed(path, "part")
                assert row is not None
                self.finished[path] = self.entry.value_of(row), trust.read(row.labels)
        labels = set().union(*(labels for _, labels in self.finished.values()))
        return [self.finished[path][0] for path in self.paths], labels


def ancestors(path: str) -> Iterator[str]:
    """The path and what is above it, the nearest first."""
    while path:
        yield path
        path = path.rpartition("/")[0]
