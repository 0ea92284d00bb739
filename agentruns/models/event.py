"""What happened to a run, in order, for people and audit."""

from django.conf import settings
from django.db import models

from agentruns.models.fields import EncodedField


class Event(models.Model):
    """One sentence about a run; `version` is the run's version that it made, and the cursor of a reader."""

    run = models.ForeignKey("agentruns.Run", models.CASCADE, related_name="events", db_index=False)
    version = models.BigIntegerField()
    kind = models.CharField(max_length=24)
    at = models.DateTimeField()
    path = models.CharField(max_length=200, blank=True)
    by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")
    about = EncodedField(default=dict, help_text="The sentence's parts: numbers, reasons, names.")

    class Meta:
        indexes = [models.Index(fields=["run", "version"], name="event_cursor")]

    def __str__(self) -> str:
        return f"{self.kind} {self.path}".strip()
