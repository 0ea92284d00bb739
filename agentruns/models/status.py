"""The six statuses of a run; who may write which is in the verbs."""

from django.db.models import TextChoices


class Status(TextChoices):
    QUEUED = "queued", "Queued"
    RUNNING = "running", "Running"
    WAITING = "waiting", "Waiting"
    COMPLETED = "completed", "Completed"
    FAILED = "failed", "Failed"
    CANCELLED = "cancelled", "Cancelled"


FINAL = (Status.COMPLETED, Status.CANCELLED)
LIVING = (Status.QUEUED, Status.RUNNING, Status.WAITING)
