"""What a response will be: settled whole when it is accepted, so that only the clock is left to run."""

import json
import math
from typing import Any, NamedTuple

from agentruns.demo import MARK, script
from agentruns.demo.faults import Fault, without_directives
from agentruns.demo.prompt import Prompt
from agentruns.demo.response import Response
from agentruns.demo.shapes import Shaper
from agentruns.demo.tokens import BLOCK_TOKENS, CHARACTERS, Usage, count, fraction

QUEUED_SHARE = 0.1  # of its time a response is queued
HUGE_MEGABYTES = 10


def settle(
    *,
    id: str,
    key: str | None,
    request: dict,
    prompt: Prompt,
    faults: list[Fault],
    cached_blocks: int,
    now: float,
    speed: float,
) -> Response:
    """The whole future of one accepted request."""
    asked = {fault.name: fault for fault in faults}
    seconds = delay(prompt, speed, asked)
    written = write(id, prompt, asked, request.get("max_output_tokens") or math.inf)
    prompt_tokens = count(prompt.text)
    cached_tokens = min(cached_blocks * BLOCK_TOKENS, prompt_tokens)
    return Response(
        id=id,
        key=key,
        created_at=now,
        started_at=now + seconds * QUEUED_SHARE,
        ready_at=now + seconds,
        request=request,
        prompt_sha256=prompt.sha256,
        ending=written.ending,
        output=[thought(id), *written.output] if written.output else [],
        error=written.error,
        total=Usage(prompt_tokens, cached_tokens, written.tokens, written.reasoning),
        shows_usage="nousage" not in asked,
        is_gone="gone" in asked,
    )


class Written(NamedTuple):
    """What the model has made in the end; `reasoning` is inside `tokens`."""

    ending: str
    output: list[dict[str, Any]]
    tokens: int
    reasoning: int
    error: dict[str, str] | None = None


def write(id: str, prompt: Prompt, asked: dict[str, Fault], most: float) -> Written:
    """The answer as far as `most` tokens reach; reasoning comes first and can use them all up."""
    if "fail" in asked:
        code = asked["fail"].argument or "server_error"
        return Written("failed", [], 0, 0, {"code": code, "message": "The generation failed (on request, demo)."})
    output = items(id, prompt, asked)
    reasoning = 24 + int(fraction("reasoning", prompt.text) * 80)
    total = reasoning + sum(count(visible(item)) for item in output)
    if "incomplete" in asked:
        most = min(most, (reasoning + total) // 2)
    if total <= most:
        return Written("completed", [] if "empty" in asked else output, total, reasoning)
    reached = int(most)
    return Written(
        "incomplete", cut(output, max(0, reached - reasoning) * CHARACTERS), reached, min(reasoning, reached)
    )


def delay(prompt: Prompt, speed: float, asked: dict[str, Fault]) -> float:
    """Seconds until the answer: 2 to 4, by the prompt, over the speed; `slow N` is N seconds at any speed."""
    if "stuck" in asked:
        return math.inf
    if "slow" in asked:
        return asked["slow"].seconds(20)
    return (2 + 2 * fraction("delay", prompt.text)) / speed


def items(id: str, prompt: Prompt, asked: dict[str, Fault]) -> list[dict[str, Any]]:
    """The model's output: a call of the next tool, JSON for a schema, or prose; a refusal or far too much, if asked."""
    if "refuse" in asked:
        return [message(id, {"type": "refusal", "refusal": f"I can't help with that. ({MARK})"})]
    if "huge" in asked:
        size = int(asked["huge"].seconds(HUGE_MEGABYTES) * 2**20)
        return [message(id, text_part((script.answer(prompt) + "\n").ljust(200) * (size // 200 + 1)))]
    phrases = script.phrases(script.task_of(without_directives(prompt.question)))
    if tool := next_tool(prompt):
        arguments = json.dumps(Shaper(tool.get("parameters") or {"type": "object"}, phrases).value())
        made = {"id": id.replace("resp_", "fc_"), "type": "function_call", "call_id": id.replace("resp_", "call_")}
        return [{**made, "name": tool["name"], "arguments": arguments, "status": "completed"}]
    if prompt.schema is not None:
        return [message(id, text_part(json.dumps(Shaper(prompt.schema, phrases, MARK).value(), ensure_ascii=False)))]
    return [message(id, text_part(script.answer(prompt)))]


def next_tool(prompt: Prompt) -> dict[str, Any] | None:
    """Each tool is called once a question, in the order given; a `tool_choice` is obeyed."""
    if prompt.tool_choice == "none" or not prompt.tools:
        return None
    done = len(prompt.results)
    if isinstance(prompt.tool_choice, dict) and not done:
        return next((tool for tool in prompt.tools if tool["name"] == prompt.tool_choice.get("name")), None)
    if prompt.tool_choice == "required":
        return prompt.tools[done % len(prompt.tools)]
    return prompt.tools[done] if done < len(prompt.tools) else None


def message(id: str, part: dict[str, Any]) -> dict[str, Any]:
    made = {"id": id.replace("resp_", "msg_"), "type": "message", "role": "assistant"}
    return {**made, "status": "completed", "content": [part]}


def thought(id: str) -> dict[str, Any]:
    """The reasoning item, empty as the vendor's is: its tokens are billed, its text is not shown."""
    return {"id": id.replace("resp_", "rs_"), "type": "reasoning", "summary": []}


def text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def visible(item: dict[str, Any]) -> str:
    if item["type"] == "function_call":
        return str(item["arguments"])
    return "".join(part.get("text") or part.get("refusal") or "" for part in item["content"])


def cut(output: list[dict[str, Any]], characters: int) -> list[dict[str, Any]]:
    """The output as far as the tokens reached; a tool call that was not finished is no call."""
    item = output[0]
    if item["type"] == "function_call" or not characters:
        return []
    part = item["content"][0]
    field = "text" if "text" in part else "refusal"
    return [{**item, "status": "incomplete", "content": [{**part, field: part[field][:characters]}]}]
