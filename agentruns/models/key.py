"""Keys under which a thing happens once: a submission, an outside effect, a webhook, a request that we received."""

from django.db import models

from agentruns.models.fields import EncodedField


class IdempotencyKey(models.Model):
    """Inserted before the thing itself; whoever comes second with the same key finds it."""

    SCOPES = [(scope, scope) for scope in ("submission", "effect", "webhook", "received")]
    STATES = [(state, state) for state in ("intent", "done", "failed", "unknown")]

    scope = models.CharField(max_length=12, choices=SCOPES)
    key = models.CharField(max_length=300)
    run = models.ForeignKey("agentruns.Run", models.CASCADE, null=True, related_name="keys")
    path = models.CharField(max_length=200, blank=True)
    fingerprint = models.CharField(max_length=64)
    arguments = EncodedField(null=True)
    state = models.CharField(max_length=8, choices=STATES)
    answer = EncodedField(null=True)
    round = models.PositiveIntegerField(
        default=0, help_text="How often a person had retried the run by its last use; of a received one, its fence."
    )
    created_at = models.DateTimeField()
    settled_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["scope", "key"], name="key_once")]
        indexes = [models.Index(fields=["scope", "state", "created_at"], name="key_by_state")]

    def __str__(self) -> str:
        return f"{self.scope} {self.key}"
