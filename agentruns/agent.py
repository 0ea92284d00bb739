"""The agent loop, on top of ctx: each turn is an ask, each tool call a durable sub-step; nothing of it is done twice.

ask → tool calls? → all of them, in parallel → their results → ask … until the model answers in words.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from agentruns.errors import PermanentError
from agentruns.plan import step
from agentruns.tools import BadArguments, Tool

MAX_TURNS, MAX_CALLS = 50, 200
# Results that a turn carries along, in characters, the newest first; older ones are named and left out.
CARRIED_CHARACTERS = 60_000
SAME_FAILURES = 3
FAILED = "Error: "


class TurnsUsedUp(PermanentError):
    """The model had not answered after the last turn that it was given, or asked for too many tool calls."""


def run_agent(
    ctx: Any,
    task: str,
    tools: Iterable[Tool],
    *,
    max_turns: int = MAX_TURNS,
    max_calls: int = MAX_CALLS,
    instructions: str | None = None,
    model: str | None = None,
    max_output_tokens: int | None = None,
) -> str:
    """The model's final text, after as many turns with tools as it takes.

    A call that fails the same way three times parks for a person, whose words the model is told. Raises TurnsUsedUp
    after `max_turns` turns or `max_calls` tool calls, and whatever an ask raises.
    """
    return Loop(ctx, list(tools), max_calls).answer(
        task, max_turns, instructions=instructions, model=model, max_output_tokens=max_output_tokens
    )


class Loop:
    """One agent's conversation so far, in the Responses API's items."""

    def __init__(self, ctx: Any, tools: list[Tool], max_calls: int) -> None:
        self.ctx, self.max_calls = ctx, max_calls
        self.tools = {one.name: one for one in tools}
        self.items: list[dict[str, Any]] = []
        self.failures: Counter[tuple[str, str, str]] = Counter()
        self.calls = 0

    def answer(self, task: str, max_turns: int, **options: Any) -> str:
        self.items = [{"role": "user", "content": task}]
        declared = [one.declared for one in self.tools.values()] or None
        for turn in range(1, max_turns + 1):
            said = self.ctx.ask(carried(self.items), name=f"turn-{turn}", tools=declared, **options)
            if not said.tool_calls:
                return str(said)
            self.hear(turn, said)
        raise TurnsUsedUp(f"The agent had no answer after {max_turns} turns. Give it more: max_turns=…")

    def hear(self, turn: int, said: Any) -> None:
        """Does what the model asked for, and adds question and result to the conversation."""
        self.calls += len(said.tool_calls)
        if self.calls > self.max_calls:
            raise TurnsUsedUp(f"The agent asked for more than {self.max_calls} tool calls. Allow more: max_calls=…")
        if str(said):
            self.items.append({"role": "assistant", "content": str(said)})
        asked = [self.known(call) for call in said.tool_calls]
        results = self.ctx.map(f"turn-{turn}-call", do_of(self.tools), asked, key=lambda call: call["call_id"].lower())
        for call, result in zip(asked, results, strict=True):
            self.items.append({"type": "function_call", **call})
            told = self.told(turn, call, result)
            self.items.append({"type": "function_call_output", "call_id": call["call_id"], "output": told})

    @staticmethod
    def known(call: dict[str, Any]) -> dict[str, str]:
        return {name: str(call.get(name) or "") for name in ("call_id", "name", "arguments")}

    def told(self, turn: int, call: dict[str, str], result: str) -> str:
        """The result as the model gets it; of the same failure for the third time, with a person's words."""
        if not result.startswith(FAILED):
            return result
        same = (call["name"], call["arguments"], result)
        self.failures[same] += 1
        if self.failures[same] % SAME_FAILURES:
            return result
        words = self.ctx.question(
            f"turn-{turn}-stuck",
            f"{call['name']}({call['arguments'][:500]}) failed {self.failures[same]} times: {result[:500]}",
        )
        return f"{result}\nA person says: {words}"


def do_of(tools: dict[str, Tool]) -> Any:
    """The step that does one call. What the model got wrong is its result; what fails is told, too."""

    @step(name="call", retries=0)
    def do(ctx: Any, call: dict[str, str]) -> str:
        one = tools.get(call["name"])
        if one is None:
            return f"{FAILED}there is no tool {call['name'][:80]!r}. There are: {', '.join(tools) or 'none'}."
        try:
            values = one.parsed(call["arguments"])
        except BadArguments as wrong:
            return f"{FAILED}{wrong}"
        try:
            result = one.run(ctx, values)
        except Exception as failure:
            return f"{FAILED}{type(failure).__name__}: {failure}"[:4000]
        return result if one.trusted else str(ctx.external(result, source=f"tool {one.name}"))

    return do


def carried(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The conversation with its newest results; older ones are named and left out, so that a turn's cost is bounded."""
    room = CARRIED_CHARACTERS
    kept: list[dict[str, Any]] = []
    for item in reversed(items):
        output = item.get("output")
        if isinstance(output, str) and len(output) > room:
            item = item | {"output": f"[{len(output):,} characters of an earlier result are left out]"}
        elif isinstance(output, str):
            room -= len(output)
        kept.append(item)
    return kept[::-1]
