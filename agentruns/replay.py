"""What is finished under a top-level step, as its function meets it again: names at once, outputs a page at a time.

A function with 100,000 sub-steps asks for them one by one, in the order in which they were finished, or nearly so.
Their outputs together would not fit into a worker, and a query for each would take a minute.
"""

import threading
from array import array
from functools import cached_property
from typing import Any, NamedTuple

from django.db.models import QuerySet

from agentruns.models import Body, Call, Grant, IdempotencyKey, Run, Step

PAGE = 512
# Rows that were read ahead and not asked for yet, at most: functions of a map ask from several threads.
AHEAD = 4 * PAGE
READ = ("path", "kind", "output", "body_id", "labels")


class Finished(NamedTuple):
    """What a resume takes from a Step's row."""

    path: str
    kind: str
    output: Any
    body_id: str | None
    labels: Any

    def value(self) -> Any:
        return Body.output(self.output, self.body_id)


class Replay:
    """The finished sub-steps of `run` under `top`, and those that this entry adds. May be asked from any thread."""

    def __init__(self, run: Run, top: str) -> None:
        self.run, self.top = run, top
        self._lock = threading.RLock()
        self._added: dict[str, Step | None] = {}
        self._ahead: dict[str, Finished] = {}
        self._used = 0

    def __contains__(self, path: str) -> bool:
        return path in self._added or path in self._places

    def get(self, path: str) -> Step | Finished | None:
        """The checkpoint at `path`, its body not loaded; None while there is none. It is not kept here any longer."""
        with self._lock:
            if path in self._added:
                return self._added[path] or Step.objects.get(run=self.run, path=path)
            if (place := self._places.get(path)) is None:
                return None
            if path not in self._ahead:
                self._read_ahead(place)
            self._used += 1
            return self._ahead.pop(path)

    def add(self, row: Step) -> None:
        """A sub-step of this entry; `row` is held until it is `stored`."""
        with self._lock:
            self._added[row.path] = row

    def stored(self, path: str) -> None:
        """It is in the database by now."""
        with self._lock:
            self._added[path] = None

    def asked(self, path: str) -> str | None:
        """Fingerprint of what was asked, sent or approved at the finished `path`; None where nothing tells it."""
        with self._lock:
            return self._fingerprints.get(path)

    def _read_ahead(self, place: int) -> None:
        """Reads the rows around `place`: twice as many as the last such reading was good for."""
        size = 1 << (min(2 * self._used, PAGE).bit_length() - 1) if self._used else 1
        first = place - place % size
        rows = Step.objects.filter(pk__in=self._ids[first : first + size].tolist()).values_list(*READ)
        self._ahead |= {row[0]: Finished(*row) for row in rows}
        self._used = 0
        while len(self._ahead) > AHEAD:
            del self._ahead[next(iter(self._ahead))]

    # --- names only ---------------------------------------------------------------------------------------------

    @cached_property
    def _places(self) -> dict[str, int]:
        """Number of each path in the order in which they were finished."""
        found = sorted(Step.objects.filter(run=self.run, top=self.top).values_list("pk", "path"))
        self._ids = array("q", [pk for pk, _ in found])
        return {path: place for place, (_, path) in enumerate(found)}

    @cached_property
    def _fingerprints(self) -> dict[str, str]:
        calls = Call.objects.filter(run=self.run, top=self.top, state="completed").order_by("number")
        keys = self._under(IdempotencyKey.objects.filter(scope="effect", state="done"))
        grants = self._under(Grant.objects.filter(effect__in=("approval", "question"), consumed_at__isnull=False))
        return (
            dict(calls.values_list("path", "fingerprint"))
            | dict(keys.values_list("path", "fingerprint"))
            | dict(grants.values_list("path", "arguments_sha256"))
        )

    def _under(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        return rows.filter(run=self.run, path__startswith=f"{self.top}/")
