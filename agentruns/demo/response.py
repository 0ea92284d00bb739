"""One response by the clock: what it will be is settled when it is accepted, what it is now follows from the time.

So nothing runs while a response is "generated", and a provider that is killed and started again goes on by itself.
"""

import math
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Any

from agentruns.demo.tokens import Usage

TERMINAL = frozenset({"completed", "failed", "incomplete", "cancelled"})
KEPT_UNSTORED_SECONDS = 600  # with store=false a background response can be fetched for about ten minutes


@dataclass(frozen=True, kw_only=True)
class Response:
    """A row. All times are seconds since the epoch."""

    id: str
    key: str | None
    """The Idempotency-Key that it was asked with."""
    created_at: float
    started_at: float
    ready_at: float
    """When it ends as `ending`; infinity for one that is stuck in the queue."""
    cancelled_at: float | None = None
    deleted_at: float | None = None
    request: dict[str, Any]
    prompt_sha256: str
    ending: str
    """completed, failed or incomplete."""
    output: list[dict[str, Any]]
    error: dict[str, str] | None
    total: Usage
    """The usage at its end."""
    shows_usage: bool = True
    is_gone: bool = False
    """Answers 404 to every question about it, as after the vendor's retention."""

    @classmethod
    def stored(
        cls,
        id: str,
        key: str | None,
        created_at: float,
        cancelled_at: float | None,
        deleted_at: float | None,
        **rest: Any,
    ) -> "Response":
        rest["total"] = Usage(*rest["total"])
        return cls(id=id, key=key, created_at=created_at, cancelled_at=cancelled_at, deleted_at=deleted_at, **rest)

    def stored_fields(self) -> dict[str, Any]:
        """All that never changes and is not a column."""
        columns = {"id", "key", "created_at", "cancelled_at", "deleted_at"}
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name not in columns}

    @property
    def is_background(self) -> bool:
        return bool(self.request.get("background"))

    @property
    def is_stored(self) -> bool:
        return self.request.get("store") is not False

    @property
    def is_billed(self) -> bool:
        """A generation is billed once, from its acceptance on; one that is stuck never begins."""
        return self.ready_at < math.inf

    @property
    def text(self) -> str:
        parts = [part for item in self.output if item["type"] == "message" for part in item["content"]]
        return "".join(part.get("text", "") for part in parts)

    def status(self, now: float) -> str:
        if self.cancelled_at is not None and now >= self.cancelled_at:
            return "cancelled"
        if now >= self.ready_at:
            return self.ending
        return "queued" if now < self.started_at and self.is_background else "in_progress"

    def usage(self, now: float) -> Usage:
        """What was generated, and so billed, until now or until it was cancelled."""
        now = min(now, self.cancelled_at or now)
        if not self.is_billed:
            return Usage(0, 0, 0, 0)
        if now >= self.ready_at:
            return self.total
        share = max(0.0, now - self.started_at) / (self.ready_at - self.started_at)
        output = int(self.total.output * share)
        return self.total._replace(output=output, reasoning=min(self.total.reasoning, output))

    def cost(self, now: float) -> Decimal:
        """USD, billed so far."""
        return self.usage(now).cost

    def expires_at(self, keep_seconds: float) -> float:
        if self.is_stored:
            return self.created_at + keep_seconds
        return self.created_at + KEPT_UNSTORED_SECONDS if self.is_background else self.created_at

    def body(self, now: float) -> dict[str, Any]:
        """The Response object of the API as it is now."""
        status = self.status(now)
        ended = status == self.ending
        usage = self.usage(now).as_json() if status in TERMINAL and self.shows_usage else None
        ask = self.request
        return {
            "id": self.id,
            "object": "response",
            "created_at": int(self.created_at),
            "completed_at": int(self.ready_at) if status == "completed" else None,
            "status": status,
            "background": self.is_background,
            "error": self.error if ended else None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": ask.get("instructions"),
            "max_output_tokens": ask.get("max_output_tokens"),
            "metadata": ask.get("metadata") or {},
            "model": ask["model"],
            "output": self.output if ended else [],
            "parallel_tool_calls": ask.get("parallel_tool_calls", True),
            "previous_response_id": ask.get("previous_response_id"),
            "reasoning": {"effort": None, "summary": None},
            "service_tier": tier(ask.get("service_tier")),
            "store": self.is_stored,
            "temperature": 1.0,
            "text": ask.get("text") or {"format": {"type": "text"}},
            "tool_choice": ask.get("tool_choice") or "auto",
            "tools": ask.get("tools") or [],
            "top_p": 1.0,
            "truncation": "disabled",
            "usage": usage,
        }


def tier(asked: str | None) -> str:
    """The tier that is really used, which is what a response names."""
    return asked if asked in {"flex", "priority"} else "default"
