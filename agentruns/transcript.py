"""A stream, put back together."""

from __future__ import annotations

from typing import Any

from agentruns.exchange import TERMINAL, mapping, words


class Transcript:
    """What the events of one stream have brought so far: its last event should have all of it, and often has not."""

    def __init__(self) -> None:
        self.response_id = ""
        self._deltas: list[str] = []
        self._items: list[Any] = []

    @property
    def text(self) -> str:
        return "".join(self._deltas)

    def add(self, event: dict[str, Any]) -> dict[str, Any] | None:
        """Takes one event; returns the whole response when this one ends it. Events it does not know are for others."""
        kind = words(event, "type")
        response = mapping(event.get("response"))
        self.response_id = words(response, "id") or self.response_id
        if kind == "response.output_text.delta":
            self._deltas.append(words(event, "delta"))
        elif kind == "response.output_item.done":
            self._items.append(event.get("item"))
        ending = kind.removeprefix("response.")
        if ending not in TERMINAL:
            return None
        output = response.get("output") or self._items
        return {**response, "id": self.response_id, "status": ending, "output": output}
