"""What is finished under a top-level step, as its function meets it again: names at once, outputs a page at a time.

A function with 100,000 sub-steps asks for them one by one, in the order in which they were finished, or nearly so.
Their outputs together would not fit into a worker, and a query for each would take a minute.
"""

import threading
from array import array
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Self

from django.db.models import Q, QuerySet, TextField
from django.db.models.functions import Cast

from agentruns.errors import MisusedContext
from agentruns.models import Body, Call, Grant, IdempotencyKey, Run, Step
from agentruns.models.fields import Corrupt, decoded
from agentruns.models.step import seal_of, seal_of_labels

PAGE = 512
# Rows that were read ahead and not asked for yet, at most: functions of a map ask from several threads.
AHEAD = 4 * PAGE


class Finished(NamedTuple):
    """What a resume takes from a Step's row: texts as they are stored."""

    path: str
    kind: str
    output: str | None
    body: str | None
    said: str
    seal: str

    @classmethod
    def of(cls, rows: QuerySet[Step]) -> list[Self]:
        output, said = Cast("output", TextField()), Cast("labels", TextField())
        return [cls(*row) for row in rows.values_list("path", "kind", output, "body_id", said, "seal")]

    @classmethod
    def at(cls, run: Run, path: str) -> Self:
        (row,) = cls.of(Step.at(run, path))
        return row

    @property
    def is_broken(self) -> bool:
        """It is not what was stored."""
        return self.seal != "" and self.seal[:8] != seal_of(self.path, self.kind, self.output, self.body, "")[:8]

    @property
    def labels(self) -> Any:
        """As they were stored; Corrupt when these are others, or none that can be read."""
        is_broken = self.seal != "" and self.seal[8:] != seal_of_labels(self.said)
        return Corrupt(self.said, "its seal is another") if is_broken else labels_in(self.said)

    def value(self) -> Any:
        """The output; Corrupt when it cannot be read, or its body is gone."""
        if self.body is not None:
            return Body.read(self.body)
        return None if self.output is None else decoded(self.output)


@lru_cache(maxsize=64)
def labels_in(said: str) -> Any:
    return decoded(said)


class Replay:
    """The finished sub-steps of `run` under `top`, and the names of those that this entry adds. May be asked from any
    thread."""

    def __init__(self, run: Run, top: str) -> None:
        self.run, self.top = run, top
        self._lock = threading.Lock()
        self._added: set[str] = set()
        self._ahead: dict[str, Finished] = {}
        self._used = 0

    def __contains__(self, path: str) -> bool:
        with self._lock:
            return path in self._added or path in self._places

    def get(self, path: str) -> Finished | None:
        """The checkpoint at `path`; None while there is none. It is handed out once, and not kept here any longer."""
        with self._lock:
            if path in self._added:
                raise MisusedContext(f"{path!r} was made in this very entry; a name is used once.")
            if (place := self._places.get(path)) is None:
                return None
            if path not in self._ahead:
                self._read_ahead(place)
            self._used += 1
            return self._ahead.pop(path)

    def add(self, path: str) -> None:
        """A sub-step that this entry has finished."""
        with self._lock:
            self._added.add(path)

    def asked(self, path: str) -> str | None:
        """Fingerprint of what was asked, sent or approved at the finished `path`; None where nothing tells it."""
        with self._lock:
            return self._fingerprints.get(path)

    def _read_ahead(self, place: int) -> None:
        """Reads the rows around `place`: twice as many as the last such reading was good for."""
        size = 1 << (min(2 * self._used, PAGE).bit_length() - 1) if self._used else 1
        first = place - place % size
        ids = self._ids[first : first + size].tolist()
        # Without a gap, by the ends: a list of numbers takes the ORM as long as the rows take.
        here = Q(pk__range=(ids[0], ids[-1])) if ids[-1] - ids[0] == len(ids) - 1 else Q(pk__in=ids)
        self._ahead |= {row.path: row for row in Finished.of(Step.objects.filter(here))}
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
