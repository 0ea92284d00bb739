"""The stop button: while a halt is open, no run is claimed and nothing new begins in one that is at work."""

from typing import Any, Self

from django.conf import settings
from django.db import IntegrityError, models, transaction
from django.db.models import Exists, Q

from agentruns.errors import WrongState
from agentruns.models.moment import now


class Halt(models.Model):
    """One halt, open until somebody ends it; at most one is. Runs keep their status: due ones stay queued."""

    at = models.DateTimeField()
    by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")
    ended_at = models.DateTimeField(null=True)
    ended_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")

    class Meta:
        permissions = [("pause_all", "Can pause and resume all work")]
        constraints = [
            # The same constant in every open row: a second one is refused.
            models.UniqueConstraint(models.Value(1), condition=Q(ended_at=None), name="halt_open_once")
        ]

    def __str__(self) -> str:
        return f"halt of {self.at:%Y-%m-%d %H:%M}"

    @classmethod
    def begin(cls, by: Any = None) -> bool:
        """Stops all new work; what is at work stops at its next boundary. False: it was stopped already."""
        try:
            with transaction.atomic():
                cls.objects.create(at=now(), by=by)
        except IntegrityError:
            return False
        return True

    @classmethod
    def end(cls, by: Any = None) -> None:
        """Work goes on; the clock rings for what is due. Raises WrongState when nothing was stopped."""
        if not cls.objects.filter(ended_at=None).update(ended_at=now(), ended_by=by):
            raise WrongState("Work is not paused; there is nothing to resume.")

    @classmethod
    def current(cls) -> Self | None:
        return cls.objects.select_related("by").filter(ended_at=None).first()

    @classmethod
    def is_on(cls) -> Exists:
        """As a condition in somebody else's query."""
        return Exists(cls.objects.filter(ended_at=None))
