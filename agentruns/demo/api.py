"""The verbs of the Responses API, without HTTP: create, retrieve, cancel, delete, count; and the ledger."""

import secrets
import time
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from agentruns.demo import generation
from agentruns.demo.errors import ApiError, Reset
from agentruns.demo.faults import Fault, UnknownFault, directives, without_directives
from agentruns.demo.prompt import Prompt, Turn, turns
from agentruns.demo.request import check, check_types
from agentruns.demo.response import TERMINAL, Response
from agentruns.demo.state import State
from agentruns.demo.tokens import count, prefixes

LONGEST_CHAIN = 200  # previous_response_id links that are followed


@dataclass(frozen=True, kw_only=True)
class Options:
    """How this provider behaves; see `python -m agentruns.demo --help`."""

    speed: float = 1.0
    background: str = "on"
    idempotency: bool = False
    poll_after: bool = True
    keep_seconds: float = 30 * 86400.0
    stream_seconds: float = 300.0
    """A stream cannot be taken up again when its response is older than this."""


@dataclass(frozen=True)
class Answer:
    """A response, and the faults that hurt its reply on the way."""

    response: Response
    faults: list[Fault]

    def has(self, name: str) -> Fault | None:
        return next((fault for fault in self.faults if fault.name == name), None)


class Api:
    def __init__(self, state: State, options: Options) -> None:
        self.state = state
        self.options = options

    def create(self, request: dict[str, Any], key: str | None) -> Answer:
        """Accepts a request, bills it and settles its future; or raises ApiError or Reset, with nothing billed."""
        check(request, has_background=self.options.background != "off")
        prompt = Prompt.of(request, self.conversation(request.get("previous_response_id")))
        with self.state.transaction():
            faults = self.struck(prompt, request, "create")
        note = (key, request.get("metadata") or {}, prompt.sha256)
        if refused := next((fault for fault in faults if fault.kind == "refused"), None):
            with self.state.transaction():
                self.state.post(None, *note, refused.name)
            raise Reset if refused.name == "reset" else ApiError.of(refused)
        replies = [fault for fault in faults if fault.kind == "reply"]
        with self.state.transaction():
            if self.options.idempotency and key and (earlier := self.state.response_with_key(key)):
                self.check_same(earlier, request)
                self.state.post(earlier.id, *note, "replayed")
                return Answer(earlier, replies)
            response = self.settle(request, prompt, key, [fault for fault in faults if fault.kind == "outcome"])
            self.state.add(response)
            self.state.post(response.id, *note, replies[0].name if replies else "accepted")
        return Answer(response, replies)

    def settle(self, request: dict[str, Any], prompt: Prompt, key: str | None, faults: list[Fault]) -> Response:
        if self.options.background == "ignored":
            request = {**request, "background": False}
        return generation.settle(
            id=f"resp_demo{secrets.token_hex(16)}",
            key=key,
            request=request,
            prompt=prompt,
            faults=faults,
            cached_blocks=self.state.cached_blocks(prefixes(prompt.text)),
            now=time.time(),
            speed=self.options.speed,
        )

    def retrieve(self, response_id: str, moment: str = "retrieve") -> Answer:
        """Raises ApiError 404 for one that is unknown, deleted, not stored or expired."""
        response = self.state.response(response_id)
        now = time.time()
        if (
            response is None
            or response.deleted_at is not None
            or response.is_gone
            or now > response.expires_at(self.options.keep_seconds)
        ):
            raise ApiError(404, f"Response with id '{response_id}' not found.", param="id")
        with self.state.transaction():
            faults = self.struck(Prompt.of(response.request, []), response.request, moment)
        if refused := next((fault for fault in faults if fault.kind == "refused"), None):
            raise Reset if refused.name == "reset" else ApiError.of(refused)
        return Answer(response, faults)

    def stream(self, response_id: str) -> Answer:
        """Takes a stream up again. Raises ApiError 400 if it was not created as one, or is too old."""
        answer = self.retrieve(response_id)
        if not answer.response.request.get("stream"):
            raise ApiError(
                400, "This response was not created with stream=true, so it cannot be streamed.", param="stream"
            )
        if time.time() - answer.response.created_at > self.options.stream_seconds:
            age = f"{self.options.stream_seconds / 60:g} minutes"
            raise ApiError(400, f"This response can no longer be streamed because it is more than {age} old.")
        return answer

    def cancel(self, response_id: str) -> Answer:
        """Stops a background response; one that has ended stays as it is. Cancelling twice is the same as once."""
        answer = self.retrieve(response_id, "cancel")
        now = time.time()
        if not answer.response.is_background:
            raise ApiError(400, "Only responses with background=true can be cancelled.", param="id")
        if answer.response.status(now) not in TERMINAL:
            self.state.mark(response_id, "cancelled_at", now)
        return Answer(self.state.response(response_id) or answer.response, answer.faults)

    def delete(self, response_id: str) -> None:
        self.retrieve(response_id)
        self.state.mark(response_id, "deleted_at", time.time())

    def count_input(self, request: dict[str, Any]) -> int:
        check_types(request)
        return count(Prompt.of(request, self.conversation(request.get("previous_response_id"))).text)

    # --- the request ---

    def check_same(self, earlier: Response, request: dict[str, Any]) -> None:
        if {**earlier.request, "background": None} != {**request, "background": None}:
            raise ApiError(422, "This Idempotency-Key was used with another request.", code="idempotency_key_reused")

    def conversation(self, response_id: str | None) -> list[Turn]:
        """All turns up to the response that `previous_response_id` names, its answer included."""
        links: list[list[Turn]] = []
        while response_id and len(links) < LONGEST_CHAIN:
            earlier = self.state.response(response_id)
            if earlier is None or earlier.deleted_at is not None:
                message = f"Previous response with id '{response_id}' not found."
                raise ApiError(400, message, code="previous_response_not_found", param="previous_response_id")
            links.append([*turns(earlier.request["input"]), *turns(earlier.output)])
            response_id = earlier.request.get("previous_response_id")
        return [turn for link in reversed(links) for turn in link]

    def struck(self, prompt: Prompt, request: dict[str, Any], moment: str) -> list[Fault]:
        """The faults that strike now, counted. A directive's `times` is for each prompt of each run anew."""
        asked = f"{prompt.instructions}\n{prompt.question}"
        try:
            wanted = [(fault, fault.options.get("match", "")) for fault in directives(asked)]
        except UnknownFault as error:
            raise ApiError(400, str(error), code="unknown_demo_fault", param="input") from None
        run = (request.get("metadata") or {}).get("run", "")
        everything = [(f"{run} {prompt.sha256} {fault.directive}", fault, word) for fault, word in wanted]
        everything += [(f"fault {number}", fault, word) for number, fault, word in self.state.faults()]
        plain = without_directives(asked).lower()
        return [
            fault
            for what, fault, word in everything
            if fault.moment == moment and word.lower() in plain and self.state.strike(what, fault.times)
        ]

    # --- for tests, and for the curious ---

    def ledger(self) -> dict[str, Any]:
        """Every response with what it has cost until now, and every POST. Costs are decimal strings in USD."""
        now = time.time()
        posts = self.state.posts()
        times = Counter(post["id"] for post in posts)
        responses = self.state.responses()
        return {
            "demo": True,
            "generations": sum(response.is_billed for response in responses),
            "cost_usd": money(sum((response.cost(now) for response in responses), Decimal(0))),
            "calls": [{**line(response, now), "posts": times[response.id]} for response in responses],
            "posts": posts,
        }


def line(response: Response, now: float) -> dict[str, Any]:
    usage = response.usage(now)
    return {
        "id": response.id,
        "idempotency_key": response.key,
        "metadata": response.request.get("metadata") or {},
        "status": response.status(now),
        "input_tokens": usage.input,
        "cached_tokens": usage.cached,
        "output_tokens": usage.output,
        "reasoning_tokens": usage.reasoning,
        "billed": response.is_billed,
        "cost_usd": money(usage.cost),
        "created_at": response.created_at,
        "prompt_sha256": response.prompt_sha256,
    }


def money(amount: Decimal) -> str:
    return f"{amount:.10f}".rstrip("0").rstrip(".") if amount else "0"
