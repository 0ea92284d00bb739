"""What a request to the Responses API says, as plain text: its conversation, its last question, its tools."""

import hashlib
import json
from typing import Any, NamedTuple


class Turn(NamedTuple):
    """One item of a conversation. `role` is user, assistant, system, developer, call (of a tool) or result (of one)."""

    role: str
    text: str


def turns(items: Any) -> list[Turn]:
    """The `input` of a request (text, or a list of items), as turns; unknown items are kept as their JSON."""
    if isinstance(items, str):
        return [Turn("user", items)]
    found = []
    for item in items or []:
        kind = item.get("type", "message")
        if kind == "message":
            found.append(Turn(str(item.get("role", "user")), content(item.get("content"))))
        elif kind == "function_call":
            found.append(Turn("call", f"{item.get('name')}({item.get('arguments')})"))
        elif kind == "function_call_output":
            found.append(Turn("result", content(item.get("output"))))
        elif kind != "reasoning":
            found.append(Turn("user", json.dumps(item, sort_keys=True)))
    return found


def content(parts: Any) -> str:
    if isinstance(parts, list):
        return "\n".join(str(part.get("text") or part.get("refusal") or "") for part in parts if isinstance(part, dict))
    return parts if isinstance(parts, str) else json.dumps(parts)


class Prompt(NamedTuple):
    """Everything the demo model reads of one request."""

    instructions: str
    conversation: list[Turn]
    tools: list[dict]
    schema: dict | None
    tool_choice: Any

    @classmethod
    def of(cls, request: dict, before: list[Turn]) -> "Prompt":
        """`before`: the conversation that `previous_response_id` names."""
        shape = (request.get("text") or {}).get("format") or {}
        return cls(
            instructions=request.get("instructions") or "",
            conversation=[*before, *turns(request.get("input"))],
            tools=[tool for tool in request.get("tools") or [] if tool.get("type") == "function"],
            schema=shape.get("schema") if shape.get("type") == "json_schema" else None,
            tool_choice=request.get("tool_choice") or "auto",
        )

    @property
    def question(self) -> str:
        """The last thing that a person said."""
        asked = [turn.text for turn in self.conversation if turn.role == "user"]
        return asked[-1] if asked else ""

    @property
    def results(self) -> list[str]:
        """What tools have answered since the last question."""
        found: list[str] = []
        for turn in self.conversation:
            if turn.role == "user":
                found.clear()
            elif turn.role == "result":
                found.append(turn.text)
        return found

    @property
    def text(self) -> str:
        """All of it, in the order in which a provider caches it: tools and instructions first."""
        tools = json.dumps(self.tools, sort_keys=True) if self.tools else ""
        schema = json.dumps(self.schema, sort_keys=True) if self.schema else ""
        return "\n".join(
            [tools, schema, self.instructions, *(f"{turn.role}: {turn.text}" for turn in self.conversation)]
        )

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()
