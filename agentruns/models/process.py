"""A heartbeat row a process, and the notifications that wait to be sent."""

from django.db import models

from agentruns.models.moment import in_seconds, now

# A process that has not been seen for so long (seconds) is taken for dead by pages and warnings.
SILENT_SECONDS = 15


class Process(models.Model):
    """A worker, clock or web process that is, or was, alive; pages read these rows, never RQ's registries."""

    KINDS = [(kind, kind) for kind in ("worker", "clock", "web")]

    name = models.CharField(primary_key=True, max_length=100, help_text="kind-host-pid-random, never used twice.")
    kind = models.CharField(max_length=8, choices=KINDS)
    host = models.CharField(max_length=100)
    pid = models.IntegerField()
    build = models.CharField(max_length=64)
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField(db_index=True)
    stopped_at = models.DateTimeField(null=True)
    memory_bytes = models.BigIntegerField(null=True)

    class Meta:
        verbose_name_plural = "processes"

    def __str__(self) -> str:
        return self.name

    @classmethod
    def born(cls, name: str, kind: str, host: str, pid: int, build: str) -> "Process":
        return cls.objects.create(
            name=name, kind=kind, host=host, pid=pid, build=build, started_at=now(), seen_at=now()
        )

    @classmethod
    def beat(cls, name: str, memory_bytes: int | None = None) -> None:
        cls.objects.filter(pk=name).update(seen_at=now(), memory_bytes=memory_bytes)

    @classmethod
    def ended(cls, name: str) -> None:
        cls.objects.filter(pk=name).update(stopped_at=now())

    @classmethod
    def builds_newer_than(cls, name: str) -> list[str]:
        """Builds that first appeared after the process `name` booted: what they advanced is not for it."""
        mine = cls.objects.filter(pk=name).values_list("started_at", flat=True).first()
        if mine is None:
            return []
        first = cls.objects.exclude(build="").values("build").annotate(first=models.Min("started_at"))
        return list(first.filter(first__gt=mine).values_list("build", flat=True))

    @classmethod
    def living(cls, kind: str) -> models.QuerySet["Process"]:
        return cls.objects.filter(kind=kind, stopped_at=None, seen_at__gt=in_seconds(-SILENT_SECONDS))
