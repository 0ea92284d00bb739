"""The run: a task on its way through a plan. Where its verbs are:

start, and what may be started ........ submission.py
claim, renew, release, rescue ......... claiming.py    (workers, under a fence; the rescue, when a worker is gone)
checkpoint, park, fail, end ........... progress.py    (workers, under a fence)
wake .................................. waking.py      (whoever knows that a wait is over)
cancel, retry, budget ................. orders.py      (people)
pause, resume ......................... pausing.py     (people)
settle ................................ settling.py    (people)
approve, reject, answer ............... granting.py    (people)
fork .................................. forking.py     (people)
intend, submitted, settle ............. ledger.py      (calls; facts come from whoever learns them)
tell .................................. telling.py     (what people want to know, into the outbox)
"""

import re
import uuid
from itertools import chain
from typing import Any

from django.conf import settings
from django.db import models

from agentruns.models.claiming import Claiming
from agentruns.models.event import Event
from agentruns.models.fields import EncodedField
from agentruns.models.forking import Forking
from agentruns.models.granting import Granting
from agentruns.models.ledger import Ledger
from agentruns.models.moment import now
from agentruns.models.orders import Orders
from agentruns.models.outbox import COMPLETED, FAILED
from agentruns.models.pausing import Pausing
from agentruns.models.progress import Progress
from agentruns.models.settling import Settling
from agentruns.models.status import FINAL, Status
from agentruns.models.submission import Submission
from agentruns.models.telling import Telling
from agentruns.models.wait import KINDS
from agentruns.models.waking import Waking

SHORTEST_ID = 6
USD: dict[str, Any] = {"max_digits": 20, "decimal_places": 10, "default": 0}


def id_begins(text: str) -> models.Q:
    """Runs whose id is `text` or begins with it, hyphens or not; none when it is under 6 digits or no such start.

    A range, because a UUID is no text on PostgreSQL.
    """
    digits = text.strip().lower().replace("-", "")
    if not re.fullmatch(f"[0-9a-f]{{{SHORTEST_ID},32}}", digits):
        return models.Q(pk__in=[])
    return models.Q(pk__gte=uuid.UUID(digits.ljust(32, "0")), pk__lte=uuid.UUID(digits.ljust(32, "f")))


class RunQuerySet(models.QuerySet["Run"]):
    def visible_to(self, user: Any) -> "RunQuerySet":
        """A person's own runs; staff see all."""
        return self if user.is_staff else self.filter(owner=user)


class Run(
    Submission, Claiming, Progress, Waking, Orders, Pausing, Settling, Granting, Forking, Telling, Ledger, models.Model
):
    """One task, durable: everything it did stands in Step, Attempt, Call, Wait and Event rows that point here."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    plan = models.CharField(max_length=64)
    title = models.CharField(max_length=200, help_text="The task's first line, for lists.")
    task = EncodedField()
    params = EncodedField(default=dict)
    model = models.CharField(max_length=100)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="runs")
    priority = models.SmallIntegerField(default=0, help_text="Higher goes first.")

    status = models.CharField(max_length=10, choices=Status.choices, default=Status.QUEUED)
    waiting_for = models.CharField(max_length=10, blank=True, choices=[(kind, kind) for kind in KINDS])
    wake_at = models.DateTimeField(null=True, help_text="The clock wakes it then.")
    reason = EncodedField(default=str, help_text="Why it waits or how it ended, in a sentence.")

    budget = models.DecimalField(**USD)
    deadline_at = models.DateTimeField(null=True)

    at_path = models.CharField(max_length=64, blank=True, help_text="The top-level step at work, or next.")
    at_number = models.PositiveIntegerField(default=0, help_text="Its attempt at work, or the last one.")
    at_since = models.DateTimeField(null=True, help_text="Since when it is at work; empty between attempts.")
    failures = models.PositiveIntegerField(default=0, help_text="Of the step at work, since the last person's retry.")
    losses = models.PositiveIntegerField(default=0, help_text="Workers lost in a row with no new row of the run.")
    entries = models.PositiveIntegerField(default=0, help_text="Entries of the step at work with no new row.")
    round = models.PositiveIntegerField(default=0, help_text="How often a person retried it.")

    fence = models.BigIntegerField(default=0, help_text="Grows with every claim and every rescue.")
    holder = models.CharField(max_length=32, blank=True, help_text="Random, fresh for each claim.")
    worker = models.CharField(max_length=100, blank=True, help_text="Name of the Process that holds it, or held it.")
    lease_expires_at = models.DateTimeField(null=True)
    build = models.CharField(max_length=64, blank=True, help_text="The build that advanced it last.")
    enqueued_at = models.DateTimeField(null=True, help_text="When the doorbell was last rung for it.")

    paused_at = models.DateTimeField(null=True, help_text="Since when a person keeps it from going on.")
    cancel_requested_at = models.DateTimeField(null=True)
    cancel_requested_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")
    forked_from = models.ForeignKey("self", models.SET_NULL, null=True, related_name="forks")
    notify = EncodedField(default=list, help_text="How its owner wants to be told of it: mail, or not at all.")
    submission_key = models.CharField(max_length=200, blank=True)
    version = models.BigIntegerField(default=1, help_text="Grows with every visible change: cursor and poll tag.")

    spent = models.DecimalField(**USD, help_text="Σ cost of settled calls; rewritten from the sum, never added to.")
    unknown = models.DecimalField(**USD, help_text="Σ reservations of unknown calls.")
    reserved = models.DecimalField(**USD, help_text="Σ reservations of open calls.")

    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    objects = RunQuerySet.as_manager()

    class Meta:
        indexes = [
            models.Index(fields=["status", "-priority", "created_at"], name="run_due"),
            models.Index(fields=["status", "wake_at"], name="run_to_wake"),
            models.Index(fields=["owner", "-created_at"], name="run_of_owner"),
            models.Index(fields=["-created_at"], name="run_newest"),
        ]
        permissions = [
            ("cancel_run", "Can cancel a run"),
            ("retry_run", "Can retry a run"),
            ("approve_run", "Can approve, reject and answer what a run waits for"),
            ("pause_run", "Can pause and resume a run"),
        ]

    def __str__(self) -> str:
        return f"{self.title[:60]} ({self.plan})"

    def get_absolute_url(self) -> str:
        from django.urls import reverse

        return reverse("run", args=[self.pk])

    def begun(self) -> set[str]:
        """Top-level names at or under which anything of this run is written."""
        tops = (rows.values_list("top", flat=True).distinct() for rows in (self.steps, self.calls))
        paths = (rows.values_list("path", flat=True).distinct() for rows in (self.attempts, self.keys.exclude(path="")))
        return {path.split("/")[0] for path in chain(*tops, *paths)}

    @property
    def is_final(self) -> bool:
        return self.status in FINAL

    @property
    def is_ended(self) -> bool:
        return self.status in {*FINAL, Status.FAILED}

    @property
    def is_demo(self) -> bool:
        return self.model == settings.DEMO_MODEL

    @property
    def short_id(self) -> str:
        return self.pk.hex[:8]

    def record(self, kind: str, *, path: str = "", by: Any = None, **about: Any) -> None:
        """Adds an Event under the version that this transaction has just made."""
        version = type(self).objects.values_list("version", flat=True).get(pk=self.pk)
        Event.objects.create(run_id=self.pk, version=version, kind=kind, at=now(), path=path, by=by, about=about)
        if kind in (FAILED, COMPLETED):
            self.tell(kind, f"{version}", path=path, reason=str(about.get("error", "")))
