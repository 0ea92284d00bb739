"""A step's output as its page shows it: at most a preview is read, whatever its size (DASHBOARD.md, C17)."""

import json
from dataclasses import dataclass, field
from typing import Any

from django.db.models.functions import Length, Substr
from django.utils.safestring import SafeString

from agentruns import encoding
from agentruns.models import Body, Run, Step
from agentruns.models.fields import Corrupt
from agentruns.web import markdown
from agentruns.web.words import visible

# Characters of a text that are shown, and of stored JSON that are read to show them (an escape takes up to twelve).
PREVIEW = 32 * 1024
READ = 6 * PREVIEW
# What a JSON value may unfold to on a page: lines in all, and levels that open.
LINES = 400
LEVELS = 8


@dataclass
class Node:
    """One line of folded JSON: its key, and either a leaf's text or what is inside."""

    key: str
    text: str = ""
    inside: list["Node"] = field(default_factory=list)
    open: bool = False


@dataclass
class Output:
    """kind: text, json, or a reason why there is nothing to show (none, gone, corrupt)."""

    kind: str
    text: str = ""
    node: Node | None = None
    size: int = 0
    is_cut: bool = False

    @property
    def html(self) -> SafeString:
        """The text as Markdown, made safe; only where a text was asked for rendered."""
        return markdown.html(self.text)


def output_of(run: Run, path: str) -> Output | None:
    """What the finished step at `path` gave, or None while there is no such step."""
    row = Step.at(run, path).values_list("output", "body_id").first()
    if row is None:
        return None
    value, body = row
    if body is None:
        return shown(value, len(encoding.canonical(value)) if not isinstance(value, Corrupt) else 0)
    stored = Body.objects.filter(pk=body).annotate(size=Length("content"), head=Substr("content", 1, READ))
    found = stored.values_list("size", "head").first()
    if found is None:
        return Output("gone")
    size, head = found
    value, size, is_cut = _begun(head, size)
    return shown(value, size, is_cut=is_cut)


def shown(value: Any, size: int, *, is_cut: bool = False) -> Output:
    """`value` sorted into a text or a JSON tree. An ask's output is shown by its text, or by the data it gave."""
    if isinstance(value, Corrupt):
        return Output("corrupt", text=visible(value.reason))
    if isinstance(value, dict) and "tool_calls" in value and "usage" in value:
        value = value.get("data") if value.get("data") is not None else value.get("text") or value["tool_calls"]
    if value is None:
        return Output("none")
    if isinstance(value, str):
        return Output("text", text=value[:PREVIEW], size=size, is_cut=is_cut or len(value) > PREVIEW)
    lines = [LINES]
    node = _fold("", value, 0, lines)
    return Output("json", node=node, size=size, is_cut=is_cut or lines[0] <= 0)


def _begun(head: str, size: int) -> tuple[Any, int, bool]:
    """(value, size, is_cut) from the first READ characters of a stored value."""
    if len(head) >= size:
        return encoding.loads(head), size, False
    if head.startswith('"'):
        return _cut_text(head), size, True
    return head[:PREVIEW], size, True


def _cut_text(head: str) -> str:
    """The text whose JSON begins with `head`; an escape that was cut through is left out."""
    for shorter in range(12):
        try:
            return str(json.loads(head[: len(head) - shorter] + '"'))
        except ValueError:
            continue
    return head


def _fold(key: str, value: Any, level: int, lines: list[int]) -> Node:
    lines[0] -= 1
    if not isinstance(value, dict | list) or not value:
        return Node(key, text=visible(json.dumps(value, ensure_ascii=False))[:PREVIEW])
    if level >= LEVELS or lines[0] <= 0:
        return Node(key, text=visible(json.dumps(value, ensure_ascii=False))[:200] + " …")
    items = value.items() if isinstance(value, dict) else ((str(n), item) for n, item in enumerate(value))
    inside: list[Node] = []
    for name, item in items:
        if lines[0] <= 0:
            inside.append(Node("…", text=f"{len(value) - len(inside):,} more"))
            break
        inside.append(_fold(visible(name), item, level + 1, lines))
    return Node(key, text="{…}" if isinstance(value, dict) else f"[{len(value):,}]", inside=inside, open=level < 2)


def as_text(value: Any) -> str:
    """The whole of an output for a file: a text as it is, anything else as indented JSON."""
    if isinstance(value, Corrupt):
        return value.text
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    return json.dumps(value, ensure_ascii=False, indent=2).encode(errors="replace").decode()
