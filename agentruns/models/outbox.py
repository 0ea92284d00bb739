"""Who is told of what: a notification is a row, written in the transaction that it tells about, and sent later."""

import base64
import hmac
import uuid
from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone

from agentruns.models.fields import EncodedField

# What may be told: a person is needed; the run failed; it is completed; 80 % of its budget is spent.
NEEDS_YOU, FAILED, COMPLETED, BUDGET = KINDS = ("needs_you", "failed", "completed", "budget")
MAIL, WEBHOOK = CHANNELS = ("mail", "webhook")
# Waits that end only when a person does something.
FOR_PEOPLE = frozenset({"operator", "approval", "effect", "budget", "price"})


class Hook(models.Model):
    """An address that is told of runs by signed webhooks."""

    url = models.CharField("URL", max_length=500)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, null=True, blank=True, related_name="+",
        help_text="Whose runs it is told of; empty: everybody's.",
    )  # fmt: skip
    kinds = EncodedField(default=list, help_text="What it is told of.")
    is_active = models.BooleanField("active", default=True)
    generation = models.PositiveIntegerField(default=1, help_text="Another number makes another secret.")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    def __str__(self) -> str:
        return self.url

    @property
    def secret(self) -> str:
        """What its webhooks are signed with: made from SECRET_KEY, so that no row and no dump holds it."""
        name = f"agentruns hook {self.pk} {self.generation}".encode()
        return "whsec_" + base64.b64encode(hmac.digest(settings.SECRET_KEY.encode(), name, "sha256")).decode()


class Outbox(models.Model):
    """A notification of one event by one way to one address. Sent at least once, under an id that never changes."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    run = models.ForeignKey("agentruns.Run", models.CASCADE, related_name="notifications", db_index=False)
    kind = models.CharField(max_length=12, choices=[(kind, kind) for kind in KINDS])
    occasion = models.CharField(max_length=220, help_text="What makes this event another than the one before.")
    channel = models.CharField(max_length=8, choices=[(channel, channel) for channel in CHANNELS])
    target = models.CharField(max_length=254, help_text="A mail address, or the number of a hook.")
    about = EncodedField(default=dict, help_text="The event as it was: status, reason, path, money.")
    created_at = models.DateTimeField()
    send_at = models.DateTimeField(null=True, help_text="The next try; empty: sent, or given up.")
    sent_at = models.DateTimeField(null=True)
    tries = models.PositiveIntegerField(default=0)
    error = EncodedField(default=str, help_text="Why the last try was in vain.")

    class Meta:
        verbose_name = "notification"
        constraints = [
            models.UniqueConstraint(fields=["run", "kind", "occasion", "channel", "target"], name="told_once")
        ]
        indexes = [
            models.Index(fields=["send_at"], condition=models.Q(send_at__isnull=False), name="outbox_due"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} by {self.channel}"


def hooks_for(owner_id: Any, kind: str) -> list[Hook]:
    mine = models.Q(owner=None) | models.Q(owner=owner_id) if owner_id else models.Q(owner=None)
    return [hook for hook in Hook.objects.filter(mine, is_active=True) if kind in hook.kinds]
