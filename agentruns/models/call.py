"""The ledger: one row per model call, from its intent to its terminal state, with what it used and cost."""

from typing import Any

from django.db import models

from agentruns.models.body import Body
from agentruns.models.fields import Corrupt, EncodedField

OPEN = ("intent", "submitted")
SETTLED = ("completed", "incomplete", "failed", "cancelled", "expired")


class Call(models.Model):
    """One model call. Written before it is sent; its facts are filled in once, by whoever learns them."""

    STATES = [(state, state) for state in (*OPEN, *SETTLED, "unknown")]

    run = models.ForeignKey("agentruns.Run", models.CASCADE, related_name="calls", db_index=False)
    path = models.CharField(max_length=200)
    top = models.CharField(max_length=64)
    number = models.PositiveIntegerField(help_text="The try at this path: 1 is the first.")
    ask = models.PositiveIntegerField(default=1, help_text="Counts questions asked; a try repeats one.")
    round = models.PositiveIntegerField(default=0, help_text="How often a person had retried the run by then.")
    attempt = models.PositiveIntegerField(default=1, help_text="The top-level step's attempt that made it.")
    model = models.CharField(max_length=100)
    provider = models.CharField(max_length=200, help_text="Base URL.")
    provider_key = models.CharField(max_length=16, blank=True, help_text="Start of the SHA-256 of the API key.")
    response_id = models.CharField(max_length=1000, blank=True, help_text="Gateways make long ones.")
    background = models.BooleanField(default=False)
    key = models.CharField(max_length=260, help_text="Idempotency-Key sent with it.")
    fingerprint = models.CharField(max_length=64)
    labels = EncodedField(null=True, help_text="Of the context that asked, before it has a Step; missing: external.")
    request = EncodedField(null=True)
    # References outlive a deleted body: what was sent or answered is then missing by name, and not empty.
    request_body = models.ForeignKey(Body, models.DO_NOTHING, null=True, db_constraint=False, related_name="+")
    answer = EncodedField(null=True, help_text="{text, refusal, tool_calls, model, incomplete}")
    answer_body = models.ForeignKey(Body, models.DO_NOTHING, null=True, db_constraint=False, related_name="+")
    partial = EncodedField(default=str, help_text="Text of a stream so far, for the page.")
    state = models.CharField(max_length=12, choices=STATES)
    error = EncodedField(default=str)
    code = models.CharField(max_length=80, blank=True)
    passing = models.BooleanField(default=False, help_text="A failure that may be tried again.")
    retry_after = models.FloatField(null=True, help_text="Seconds the provider asked to wait after it.")
    maybe_twice = models.BooleanField(default=False, help_text="Sent though an earlier try of it may have been paid.")
    poll_at = models.DateTimeField(null=True)
    polls = models.PositiveIntegerField(default=0)
    deadline_at = models.DateTimeField(null=True)
    reserved = models.DecimalField(max_digits=20, decimal_places=10, default=0)
    cost = models.DecimalField(max_digits=20, decimal_places=10, default=0)
    price = EncodedField(null=True, help_text="{input, output, cached}: USD per million tokens, as text.")
    price_source = models.CharField(max_length=60, blank=True)
    input_tokens = models.BigIntegerField(default=0)
    cached_tokens = models.BigIntegerField(default=0, help_text="Inside input.")
    output_tokens = models.BigIntegerField(default=0)
    reasoning_tokens = models.BigIntegerField(default=0, help_text="Inside output.")
    tier = models.CharField(max_length=24, blank=True)
    reserved_on = models.DateField(null=True, help_text="The UTC day it belongs to.")
    created_at = models.DateTimeField()
    submitted_at = models.DateTimeField(null=True)
    settled_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "path", "number"], name="call_once")]
        indexes = [
            models.Index(fields=["run", "top"], name="call_by_top"),
            models.Index(fields=["poll_at"], name="call_to_poll", condition=models.Q(state="submitted")),
            models.Index(fields=["response_id"], name="call_by_response"),
            models.Index(fields=["reserved_on"], name="call_by_day"),
        ]

    def __str__(self) -> str:
        return f"{self.path} #{self.number} {self.state}"

    @property
    def is_open(self) -> bool:
        return self.state in OPEN

    def elsewhere(self, base_url: str) -> str:
        """For people: it cannot be asked for at `base_url`, where it was not made."""
        return f"The call at {self.path} is in flight at {self.provider}, not at {base_url}. Set OPENAI_BASE_URL back."

    def reply(self) -> dict[str, Any]:
        """The answer's parts: text, refusal, tool_calls, model, incomplete (reason); none where it cannot be read."""
        answer = self.answered()
        return answer if isinstance(answer, dict) else {}

    def answered(self) -> Any:
        """The answer as it was stored; Corrupt when it is gone, or is not what was stored."""
        return self.answer if self.answer_body_id is None else body_value(self, "answer_body")

    def request_sent(self) -> Any:
        """The request; Corrupt when it is gone, or is not what was stored."""
        return self.request if self.request_body_id is None else body_value(self, "request_body")


def body_value(row: models.Model, name: str) -> Any:
    """The value that the foreign key `name` of `row` refers to; Corrupt when the body is gone."""
    try:
        return getattr(row, name).value()
    except Body.DoesNotExist:
        return Corrupt("", f"its body {getattr(row, f'{name}_id')[:12]} is gone")
