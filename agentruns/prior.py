"""What a step reads of earlier ones."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from agentruns.entry import Entry
from agentruns.errors import MisusedContext


class Prior(Mapping[str, Any]):
    """Outputs of finished top-level steps, by name or alias. What is read is recorded, and its labels are handed on."""

    def __init__(self, entry: Entry, hand_out: Callable[[set[str]], None]) -> None:
        self._entry, self._hand_out = entry, hand_out

    def __getitem__(self, name: str) -> Any:
        entry = self._entry
        entry.check()
        path = self._path(name)
        if path is None:
            known = ", ".join(self) or "none yet"
            raise MisusedContext(f"prior[{name!r}]: no finished step is called that. Finished: {known}.")
        with entry.ours():
            value, labels = entry.output_of(path)
        entry.reads.add(name)
        self._hand_out(labels)
        return value

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401 - this is get

    def _path(self, name: object) -> str | None:
        self._entry.check()
        finished = self._entry.finished
        if isinstance(name, str) and (step := self._entry.plan.by_name.get(name)) is not None:
            return next((one for one in step.names if one in finished), None)
        return name if isinstance(name, str) and name in finished else None

    def __contains__(self, name: object) -> bool:
        return self._path(name) is not None

    def __iter__(self) -> Iterator[str]:
        self._entry.check()
        finished = self._entry.finished
        return (step.name for step in self._entry.plan.steps if finished.intersection(step.names))

    def __len__(self) -> int:
        return sum(1 for _ in self)
