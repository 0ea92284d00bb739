"""Checkpoints, and the executions that led to them."""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.db import models

from agentruns.models.body import Body
from agentruns.models.fields import Corrupt, EncodedField


class Step(models.Model):
    """A finished step: a checkpoint. Inserted once, never updated, never deleted."""

    KINDS = [(kind, kind) for kind in ("step", "part", "ask", "effect", "sleep", "approval", "question")]

    run = models.ForeignKey("agentruns.Run", models.CASCADE, related_name="steps", db_index=False)
    path = models.CharField(max_length=200)
    top = models.CharField(max_length=64, help_text="The top-level step this path stands under, or is.")
    kind = models.CharField(max_length=10, choices=KINDS)
    output = EncodedField(null=True)
    # Its reference outlives a deleted body: the output is then missing by name, and not None.
    body = models.ForeignKey(
        Body, models.DO_NOTHING, null=True, db_constraint=False, db_index=False, help_text="An output over 2 KB."
    )
    labels = EncodedField(help_text="Where its value came from; whatever is missing reads as external.")
    reads = EncodedField(help_text="Names of the earlier steps it was handed.")
    seal = models.CharField(max_length=16, blank=True, help_text="Over what a resume takes from it; empty: none.")
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField()

    class Meta:
        # One index for both questions: is this path finished, and what is under this top-level step. `top` follows from
        # `path`, so that a path is unique in its run. See `at`.
        constraints = [models.UniqueConstraint(fields=["run", "top", "path"], name="step_once")]
        indexes = [
            models.Index(fields=["body"], condition=models.Q(body__isnull=False), name="step_by_body"),
        ]

    def __str__(self) -> str:
        return self.path

    @classmethod
    def at(cls, run: Any, path: str) -> models.QuerySet["Step"]:
        """The row at `path`, or none. The index is by `top` first: by path alone all rows of the run are read."""
        return cls.objects.filter(run=run, top=path.partition("/")[0], path=path)

    def value(self) -> Any:
        """The output, from its own row or from its body; Corrupt when that is gone, or is not what was stored."""
        if self.body_id is None:
            return self.output
        try:
            body = self.body
        except Body.DoesNotExist:
            body = None
        return body.value() if body else Corrupt("", f"its body {self.body_id[:12]} is gone")


@dataclass(eq=False)
class NewStep:
    """A Step that is not written yet. A plain object: one of the model takes as long to make as its row to write."""

    run_id: UUID
    path: str
    top: str
    kind: str
    output: Any
    body: Body | None
    labels: list[str]
    reads: list[str]
    seal: str
    started_at: datetime
    finished_at: datetime
    # Columns that are in the database's form already, by name; see prepared.py.
    prepared: dict[str, Any]

    def __post_init__(self) -> None:
        self.body_id = self.body and self.body.sha256


def seal_of(path: str, kind: str, output: str | None, body: str | None, labels: str) -> str:
    """8 hex digits over a checkpoint as it is stored and 8 over its labels; not over its run: a fork has copies.

    `output` and `labels` are the stored texts, `body` is a SHA-256. Of a broken output nothing may be made; labels that
    are broken read as external, as missing ones do.
    """
    return digits(path, kind, output or "", body or "") + seal_of_labels(labels)


@lru_cache(maxsize=64)
def seal_of_labels(labels: str) -> str:
    """There are few, and each is met often."""
    return digits(labels)


def digits(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]


class Attempt(models.Model):
    """One execution of a top-level step, written at its end, or by the rescue from the run's `at`."""

    OUTCOMES = [(name, name) for name in ("finished", "failed", "interrupted", "cancelled", "parked")]

    run = models.ForeignKey("agentruns.Run", models.CASCADE, related_name="attempts", db_index=False)
    path = models.CharField(max_length=64)
    number = models.PositiveIntegerField(help_text="1 is the first; every entry of the function is one.")
    worker = models.CharField(max_length=100, blank=True)
    build = models.CharField(max_length=64, blank=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField()
    outcome = models.CharField(max_length=12, choices=OUTCOMES)
    cause = models.CharField(max_length=20, blank=True, help_text="Of an interruption: crash, lease, deploy, timeout…")
    error = EncodedField(default=str)
    traceback = EncodedField(default=str)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "path", "number"], name="attempt_once")]

    def __str__(self) -> str:
        return f"{self.path} #{self.number} {self.outcome}"


@dataclass(eq=False)
class NewAttempt:
    """An Attempt that is not written yet: its end is the database's time when it is."""

    run_id: UUID
    path: str
    number: int
    worker: str
    build: str
    started_at: datetime
    outcome: str
    cause: str
    error: str
    traceback: str
