"""What a provider can, whether it is stopped, what its models cost, and the budget of a day."""

from typing import Any

from django.conf import settings
from django.db import models, transaction

from agentruns import pricing
from agentruns.models.moment import in_seconds, now

PROBED_SECONDS = 24 * 3600
PROBE_SECONDS = 60.0


class Provider(models.Model):
    """One base URL and model: its background mode as probed, and the reason why nothing is sent to it, if any."""

    base_url = models.CharField(max_length=200)
    model = models.CharField(max_length=100, blank=True, help_text="Empty: the row that stops the whole provider.")
    background = models.BooleanField(null=True)
    probed_at = models.DateTimeField(null=True)
    stopped_at = models.DateTimeField(null=True)
    reason = models.TextField(blank=True)
    probe_at = models.DateTimeField(null=True, help_text="From then on one call may try whether it works again.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["base_url", "model"], name="provider_once")]

    def __str__(self) -> str:
        return f"{self.base_url} {self.model}".strip()

    @classmethod
    def can_background(cls, base_url: str, model: str) -> bool:
        """What the last real call showed, remembered for a day; unknown: try it."""
        row = cls.objects.filter(base_url=base_url, model=model, probed_at__gt=in_seconds(-PROBED_SECONDS)).first()
        return row is None or row.background is not False

    @classmethod
    def learn(cls, base_url: str, model: str, *, background: bool) -> None:
        """Remembers what a real call showed; writes only when it is news or a day old."""
        fresh = cls.objects.filter(
            base_url=base_url, model=model, background=background, probed_at__gt=in_seconds(-PROBED_SECONDS)
        )
        if not fresh.exists():
            cls.objects.update_or_create(
                base_url=base_url, model=model, defaults={"background": background, "probed_at": now()}
            )

    @classmethod
    def stop(cls, base_url: str, reason: str) -> None:
        """Quota or key: nothing more is sent there, by any run, until one probing call a minute succeeds."""
        values = {"stopped_at": now(), "reason": reason[:1000], "probe_at": in_seconds(PROBE_SECONDS)}
        cls.objects.update_or_create(base_url=base_url, model="", defaults=values)

    @classmethod
    def reopen(cls, base_url: str) -> bool:
        """A call was taken: the provider works. True: it had been stopped, and runs may wait for this."""
        stopped = cls.objects.filter(base_url=base_url, model="", stopped_at__isnull=False)
        return bool(stopped.update(stopped_at=None, reason="", probe_at=None))


class Price(models.Model):
    """What a model costs here, USD per million tokens; wins over AGENT_PRICE and over the built-in price list."""

    model = models.CharField(max_length=100, unique=True)
    input = models.DecimalField(max_digits=12, decimal_places=6)
    output = models.DecimalField(max_digits=12, decimal_places=6)
    cached = models.DecimalField(max_digits=12, decimal_places=6, null=True, blank=True)
    changed_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"{self.model}: {self.input}/{self.output}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Runs that wait for this price go on."""
        from agentruns.models.run import Run  # which has calls, which have prices

        super().save(*args, **kwargs)
        transaction.on_commit(Run.wake_priced, robust=True)

    @classmethod
    def override(cls, model: str) -> pricing.Price | None:
        """The row's price for `model`, if there is a row."""
        row = cls.objects.filter(model=model).first()
        return pricing.Price(row.input, row.output, row.cached, "Price row") if row else None


class Day(models.Model):
    """The budget of one UTC day, of all runs (no owner) or of one owner; locked first by every reservation."""

    date = models.DateField()
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, null=True, blank=True, related_name="+")
    budget = models.DecimalField(max_digits=20, decimal_places=10, null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["date", "owner"], name="day_of_owner_once"),
            models.UniqueConstraint(fields=["date"], condition=models.Q(owner=None), name="day_of_all_once"),
        ]

    def __str__(self) -> str:
        return f"{self.date}"
