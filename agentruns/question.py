"""What an ask asks, and what it gets."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import jsonschema

from agentruns.errors import MisusedContext, Refused
from agentruns.exchange import Request
from agentruns.models import Call

OWN_TOOLS = ("function", "custom")  # answered by us; whatever else a provider runs, and bills, itself


@dataclass(frozen=True)
class Question:
    """What an author asks; `schema` is a JSON schema or a pydantic model class, `check` raises to refuse an answer."""

    prompt: str | list[Any]
    model: str
    instructions: str | None = None
    max_output_tokens: int | None = None
    tools: list[Any] | None = None
    schema: Any = None
    check: Callable[[Any], object] | None = None

    @property
    def json_schema(self) -> dict[str, Any] | None:
        return self.schema.model_json_schema() if hasattr(self.schema, "model_json_schema") else self.schema

    def refuse_misuse(self) -> None:
        """Raises MisusedContext for what could only fail after it was paid, or has no upper price."""
        if self.max_output_tokens is not None and self.max_output_tokens < 1:
            raise MisusedContext(f"max_output_tokens={self.max_output_tokens!r}: give a number of tokens above 0.")
        for tool in self.tools or ():
            if isinstance(tool, dict) and tool.get("type") not in OWN_TOOLS:
                raise MisusedContext(
                    f"The tool {tool.get('type')!r} runs at the provider and has a price of its own, so the budget "
                    "could not be kept. Give function tools, and run them in steps."
                )
        if self.schema is None or hasattr(self.schema, "model_validate"):
            return
        try:
            jsonschema.validators.validator_for(self.schema).check_schema(self.schema)
        except (jsonschema.SchemaError, TypeError, AttributeError) as error:
            raise MisusedContext(f"schema= is neither a JSON schema nor a pydantic model: {str(error)[:300]}") from None

    def parsed(self, text: str) -> Any:
        """The answer's JSON, if a schema was asked for. Raises Misfit when it does not fit."""
        if self.schema is None:
            return None
        try:
            data = json.loads(text)
            if hasattr(self.schema, "model_validate"):
                self.schema.model_validate(data)
            else:
                jsonschema.validate(data, self.schema)
        except (ValueError, RecursionError, jsonschema.ValidationError) as error:
            raise Misfit(f"the answer does not fit its schema: {str(error)[:500]}") from error
        return data


class Misfit(Exception):
    """An answer that was completed and paid, but is not one: its schema or check refused it."""


class Answer(str):
    """A model's answer: its text, with what it used (`usage`: tokens) and cost (USD), and what it was parsed to."""

    usage: dict[str, int]
    cost: Decimal
    model: str
    data: Any
    tool_calls: list[dict[str, Any]]

    @classmethod
    def of(cls, stored: dict[str, Any], question: Question) -> "Answer":
        """From what was checkpointed, or is about to be."""
        answer = cls(stored["text"])
        answer.usage, answer.cost, answer.model = stored["usage"], Decimal(stored["cost"]), stored["model"]
        answer.data, answer.tool_calls = stored["data"], stored["tool_calls"]
        # The JSON is what is kept, as it came: what a pydantic model dumps is not what it reads, where it has aliases.
        if stored["data"] is not None and hasattr(question.schema, "model_validate"):
            answer.data = question.schema.model_validate(stored["data"])
        return answer


def accepted(call: Call, question: Question) -> tuple[Answer, dict[str, Any]]:
    """The completed call's answer and what is to be checkpointed of it. Raises Misfit, or Refused when it declines."""
    reply = call.reply()
    if reply.get("refusal"):
        raise Refused(f"The model declined: {reply['refusal'][:500]}", "refusal")
    text, calls = reply.get("text", ""), reply.get("tool_calls") or []
    stored = {
        "text": text,
        # A turn that calls tools has no answer yet that could fit the schema.
        "data": None if calls and not text else question.parsed(text),
        "tool_calls": calls,
        "model": reply.get("model") or call.model,
        "usage": {
            "input": call.input_tokens,
            "cached": call.cached_tokens,
            "output": call.output_tokens,
            "reasoning": call.reasoning_tokens,
        },
        "cost": str(call.cost),
    }
    answer = Answer.of(stored, question)
    if question.check is not None:
        try:
            question.check(answer)
        except Exception as refusal:
            raise Misfit(f"{type(refusal).__name__}: {refusal}") from refusal
    return answer, stored


def repeated(call: Call) -> Request | None:
    """The request of `call` once more, byte for byte; None when it is not stored any more."""
    body = call.request_sent()
    if not isinstance(body, dict):
        return None
    shape = body.get("text", {}).get("format", {})
    return Request(
        model=body["model"], input=body["input"], instructions=body.get("instructions"),
        max_output_tokens=body["max_output_tokens"], tools=body.get("tools"), schema=shape.get("schema"),
        schema_name=shape.get("name", ""), metadata=body.get("metadata", {}), idempotency_key=call.key,
    )  # fmt: skip
