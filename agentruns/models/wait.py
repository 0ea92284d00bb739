"""What a parked run waits for, and a person's word that ends it."""

from django.conf import settings
from django.db import models
from django.db.models import Q

from agentruns.models.fields import EncodedField
from agentruns.models.moment import now

# Most urgent first: what `Run.waiting_for` shows when several things are open.
KINDS = (
    "operator", "approval", "effect", "budget", "price", "code", "provider", "slot", "retry", "timer", "model",
)  # fmt: skip

# A run that waits for several answers is woken at most so often: it is entered, and its checkpoints read, each time.
FAN_OUT_SECONDS = 1.0


class Wait(models.Model):
    """One thing a run waits for. The first meeting opens it, re-entry finds it, whoever ends it closes it."""

    run = models.ForeignKey("agentruns.Run", models.CASCADE, related_name="waits")
    path = models.CharField(max_length=200)
    kind = models.CharField(max_length=10, choices=[(kind, kind) for kind in KINDS])
    until = models.DateTimeField(null=True, help_text="Wakes by itself then; empty: only by what it waits for.")
    payload = EncodedField(null=True)
    payload_sha256 = models.CharField(max_length=64, blank=True)
    opened_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True)
    closed_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "path"], condition=Q(closed_at=None), name="wait_open_once")
        ]

    def __str__(self) -> str:
        return f"{self.kind} at {self.path}"


class Grant(models.Model):
    """A person's yes or no to exactly one effect; used once, in the effect's intent."""

    run = models.ForeignKey("agentruns.Run", models.CASCADE, related_name="grants", db_index=False)
    path = models.CharField(max_length=200)
    effect = models.CharField(max_length=200, help_text="The dotted name of the function; approval; question.")
    arguments_sha256 = models.CharField(max_length=64)
    given = models.BooleanField()
    reason = EncodedField(default=str, help_text="Why not; of a question, the answer.")
    by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+")
    at = models.DateTimeField()
    until = models.DateTimeField()
    consumed_at = models.DateTimeField(null=True)
    round = models.PositiveIntegerField(default=0, help_text="How often a person had retried the run by then.")

    class Meta:
        indexes = [models.Index(fields=["run", "path"], name="grant_by_path")]

    def __str__(self) -> str:
        return f"{'yes' if self.given else 'no'} to {self.effect} at {self.path}"

    def use(self) -> bool:
        """Consumes it, in the transaction of what it allows; False: it was used before, or is too old by now."""
        mine = Grant.objects.filter(pk=self.pk, given=True, consumed_at=None, until__gt=now())
        return bool(mine.update(consumed_at=now()))
