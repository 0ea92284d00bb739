"""What goes to a model and what comes back, as plain values: the Responses API's JSON, read leniently.

Providers that speak this API differ in what they leave out (usage details, status, even ids), so every reader here
takes what is missing for empty, and nothing here raises on an answer that was paid for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from agentruns.encoding import fingerprint
from agentruns.errors import ModelError

Status = Literal["queued", "in_progress", "completed", "failed", "incomplete", "cancelled"]

TERMINAL = {"completed", "failed", "incomplete", "cancelled"}
PASSING = {"server_error", "rate_limit_exceeded", "server_is_overloaded", "slow_down", "vector_store_timeout"}

ANSWER_BYTES = 10 * 2**20  # what a step may store (encoding.OUTPUT_BYTES); a longer text could not be kept anyway
STORED_FIELDS = ("id", "status", "model", "output", "usage", "error", "incomplete_details", "service_tier", "metadata")


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Tokens of one call. `cached` and `cache_write` are counted inside `input`, `reasoning` inside `output`."""

    input: int
    cached: int
    output: int
    reasoning: int
    tier: str
    cache_write: int = 0


@dataclass(frozen=True, kw_only=True)
class Request:
    """One call, before it is sent. `idempotency_key` goes out as a header; nothing relies on it being honoured."""

    model: str
    input: str | list[Any]
    instructions: str | None = None
    max_output_tokens: int
    tools: list[Any] | None = None
    schema: dict[str, Any] | None = None
    schema_name: str = "answer"
    previous_response_id: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    idempotency_key: str = ""

    def body(self) -> dict[str, Any]:
        """The JSON that is sent, but for `background` and `stream`, which are how it is sent."""
        body = {
            "model": self.model,
            "instructions": self.instructions,
            "input": self.input,
            "max_output_tokens": self.max_output_tokens,
            "tools": self.tools,
            "text": {"format": self.format()} if self.schema is not None else None,
            "previous_response_id": self.previous_response_id,
            "metadata": self.metadata or None,
            # Explicit, always: some projects drop a background answer after 10 minutes unless it says so.
            "store": True,
        }
        return {name: value for name, value in body.items() if value is not None}

    def sendable(self) -> dict[str, Any]:
        """`body`, tried before anything is booked or sent: a lone surrogate or a NaN would fail inside the client."""
        body = self.body()
        try:
            json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, TypeError, RecursionError) as error:
            raise ModelError(f"The request is no JSON that can be sent: {str(error)[:200]}", "unsendable") from None
        return body

    def format(self) -> dict[str, Any]:
        name = re.sub(r"[^A-Za-z0-9_-]", "_", self.schema_name)[:64] or "answer"
        return {"type": "json_schema", "name": name, "schema": self.schema, "strict": is_strict(self.schema)}

    def fingerprint(self) -> str:
        """Hash of what decides the answer; `metadata` does not, and differs from one attempt to the next."""
        return fingerprint({name: value for name, value in self.body().items() if name != "metadata"})


def is_strict(schema: Any) -> bool:
    """Whether a provider's strict mode would take the schema: every object closed, and all its properties required."""
    if isinstance(schema, list):
        return all(is_strict(item) for item in schema)
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        names = set(schema.get("properties", {}))
        if schema.get("additionalProperties") is not False or set(schema.get("required", [])) != names:
            return False
    return all(is_strict(value) for value in schema.values())


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What a provider says about one call, now: still open, or how it ended, with what it used."""

    response_id: str
    status: Status
    text: str = ""
    refusal: str = ""
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    usage: Usage | None = None
    model: str = ""
    error_code: str = ""
    error: str = ""
    incomplete_reason: str = ""
    poll_after: float | None = None
    """Seconds the provider asks to be left alone for."""
    body: dict[str, Any] = field(default_factory=dict)
    """The answer as it came, cut to the fields worth keeping."""

    @property
    def is_open(self) -> bool:
        return self.status not in TERMINAL

    @property
    def error_is_passing(self) -> bool:
        """It failed by no fault of the request: the same one may be sent again."""
        return self.status == "failed" and self.error_code in PASSING

    @property
    def error_is_policy(self) -> bool:
        """It failed because the provider declines what was asked."""
        return self.status == "failed" and is_policy(self.error_code)


def is_policy(code: str) -> bool:
    """Whether an error code means that the provider declines the content, now and every time."""
    return code in {"invalid_prompt", "content_filter", "moderation_blocked"} or "policy" in code


def read_reply(response: dict[str, Any], *, poll_after: float | None = None, brought: str = "") -> Reply:
    """A Reply from a response's JSON; `brought` is the text of a stream, for providers whose last event has none."""
    parts = list(contents(response))
    text = "".join(words(part, "text") for part in parts if part.get("type") == "output_text")
    refusal = "".join(words(part, "refusal") for part in parts if part.get("type") == "refusal")
    calls = [item for item in items(response) if item.get("type") == "function_call"]
    error = mapping(response.get("error"))
    reply = Reply(
        response_id=words(response, "id"),
        status=status_of(response),
        text=text or ("" if refusal or calls else brought),
        refusal=refusal,
        tool_calls=calls,
        usage=read_usage(response),
        model=words(response, "model"),
        error_code=words(error, "code"),
        error=words(error, "message"),
        incomplete_reason=words(mapping(response.get("incomplete_details")), "reason"),
        poll_after=poll_after,
        body={name: response[name] for name in STORED_FIELDS if response.get(name) is not None},
    )
    return reply if len(reply.text.encode(errors="replace")) <= ANSWER_BYTES else oversized(reply)


def response_in(content: bytes) -> dict[str, Any]:
    """The response object in an HTTP answer; ValueError for what is none, such as a gateway's word about itself."""
    answer = json.loads(content)
    if not (mapping(answer).get("id") or items(mapping(answer))):
        raise ValueError(f"not a response: {content[:200].decode(errors='replace')}")
    return mapping(answer)


def oversized(reply: Reply) -> Reply:
    """The reply without an answer nobody could store: a failure that still says what it used, so that it is booked."""
    size = len(reply.text.encode(errors="replace"))
    return Reply(
        response_id=reply.response_id,
        status="failed",
        usage=reply.usage,
        model=reply.model,
        error_code="answer_too_large",
        error=f"The answer has {size:,} bytes; at most {ANSWER_BYTES:,} can be kept. Ask for a shorter one.",
        body={name: value for name, value in reply.body.items() if name != "output"},
    )


def status_of(response: dict[str, Any]) -> Status:
    """Its status; without one, an answer that is there is complete. One we do not know is still open: it is polled,
    and the call's deadline bounds that, where taking it for an ending would throw away what is being paid for."""
    status = response.get("status")
    if status in TERMINAL or status in {"queued", "in_progress"}:
        return cast(Status, status)
    if mapping(response.get("error")):
        return "failed"
    return "in_progress" if status or not items(response) else "completed"


def read_usage(response: dict[str, Any]) -> Usage | None:
    """Token counts; None where the provider gives none. A detail that is absent, or no number, counts as 0."""
    usage = mapping(response.get("usage"))
    given, made = count(usage, "input_tokens", "prompt_tokens"), count(usage, "output_tokens", "completion_tokens")
    if not given and not made and not (usage and response.get("status") in {"failed", "cancelled"}):
        return None  # an answer was made of no tokens: a provider that does not count; a cancelled call may have none
    of_input = mapping(usage.get("input_tokens_details") or usage.get("prompt_tokens_details"))
    of_output = mapping(usage.get("output_tokens_details") or usage.get("completion_tokens_details"))
    cached = min(count(of_input, "cached_tokens"), given)
    return Usage(
        input=given,
        cached=cached,
        output=made,
        reasoning=min(count(of_output, "reasoning_tokens"), made),
        tier=words(response, "service_tier"),
        cache_write=min(count(of_input, "cache_write_tokens"), given - cached),
    )


def contents(response: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The content parts of its messages, in order; reasoning and tool items have none that is an answer."""
    for item in items(response):
        if item.get("type") == "message" and isinstance(item.get("content"), list):
            yield from (part for part in item["content"] if isinstance(part, dict))


def items(response: dict[str, Any]) -> list[dict[str, Any]]:
    output = response.get("output")
    return [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []


def mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def words(value: dict[str, Any], name: str) -> str:
    found = value.get(name)
    return "" if found is None else found if isinstance(found, str) else str(found)


def count(usage: dict[str, Any], *names: str) -> int:
    for name in names:
        number = usage.get(name)
        if isinstance(number, (int, float)) and not isinstance(number, bool) and 0 < number < 10**12:
            return int(number)
    return 0
