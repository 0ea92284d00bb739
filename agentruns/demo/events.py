"""A response as a stream: the events of its whole life with the time of each, computed from the row alone.

The same row gives the same events, so a stream can be taken up again after any event, also after a restart.
"""

from collections.abc import Iterator
from typing import Any

from agentruns.demo.response import Response

DELTAS = 60  # a text comes in at most about this many pieces
Event = dict[str, Any]


def timeline(response: Response) -> Iterator[tuple[float, Event]]:
    """(when, event) in order; `sequence_number` counts from 0. A stuck response never gets past its first events."""
    for number, (at, event) in enumerate(unnumbered(response)):
        yield at, {**event, "sequence_number": number}


def unnumbered(response: Response) -> Iterator[tuple[float, Event]]:
    created, started, ready = response.created_at, response.started_at, response.ready_at
    yield created, {"type": "response.created", "response": response.body(created)}
    if response.is_background:
        yield created, {"type": "response.queued", "response": response.body(created)}
    yield started, {"type": "response.in_progress", "response": response.body(started)}
    if response.ending != "failed":
        pieces = [event for index, item in enumerate(response.output) for event in item_events(index, item)]
        for place, event in enumerate(pieces, start=1):
            yield started + (ready - started) * place / (len(pieces) + 1), event
    yield ready, {"type": f"response.{response.ending}", "response": response.body(ready)}


def item_events(index: int, item: dict[str, Any]) -> Iterator[Event]:
    """One output item: added, its content in pieces, done."""
    place = {"output_index": index, "item_id": item["id"]}
    bare = {**item, "status": "in_progress"}
    if item["type"] == "message":
        bare["content"] = []
    elif item["type"] == "function_call":
        bare["arguments"] = ""
    yield {"type": "response.output_item.added", "output_index": index, "item": bare}
    if item["type"] == "message":
        for content_index, part in enumerate(item["content"]):
            yield from part_events({**place, "content_index": content_index}, part)
    elif item["type"] == "function_call":
        for piece in pieces_of(item["arguments"]):
            yield {"type": "response.function_call_arguments.delta", **place, "delta": piece}
        end = {"name": item["name"], "arguments": item["arguments"]}
        yield {"type": "response.function_call_arguments.done", **place, **end}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def part_events(place: dict[str, Any], part: dict[str, Any]) -> Iterator[Event]:
    field = "refusal" if part["type"] == "refusal" else "text"
    kind = f"response.{part['type']}"
    extra: dict[str, Any] = {"logprobs": []} if field == "text" else {}
    yield {"type": "response.content_part.added", **place, "part": {**part, field: ""}}
    for piece in pieces_of(part[field]):
        yield {"type": f"{kind}.delta", **place, "delta": piece, **extra}
    yield {"type": f"{kind}.done", **place, field: part[field], **extra}
    yield {"type": "response.content_part.done", **place, "part": part}


def pieces_of(text: str) -> Iterator[str]:
    size = max(8, len(text) // DELTAS)
    for start in range(0, len(text), size):
        yield text[start : start + size]
