"""Text for a terminal: aligned, and harmless, whatever a model has written."""

import shutil
import sys
from collections.abc import Sequence
from io import StringIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentruns.web.words import visible

DEMO = "DEMO: made by the demo model; its texts are scripted and its prices invented."
# A pipe has no width: nothing is cut for a program that reads.
PIPE_WIDTH = 10_000


def text(value: object) -> str:
    """Any number of lines, with what would move the cursor or reorder text written out."""
    return visible(value).replace("\r", "⟨U+000D⟩")


def line(value: object) -> str:
    """One line of it."""
    return text(" ".join(str(value).split()))


def indented(value: object, by: str = "  ") -> str:
    return "\n".join(f"{by}{one}".rstrip() for one in text(value).split("\n"))


def width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_WIDTH


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Aligned columns, numbers (`>` before the column's name) to the right; the last one is cut to the terminal."""
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        is_last, is_number = column == columns[-1], column.startswith(">")
        drawn.add_column(
            Text(column.lstrip(">")), justify="right" if is_number else "left", no_wrap=True,
            overflow="ellipsis", ratio=1 if is_last else None, min_width=None if is_last else len(column),
        )  # fmt: skip
    for row in rows:
        drawn.add_row(*(Text(line(cell)) for cell in row))
    paper = StringIO()
    Console(file=paper, width=width(), color_system=None, legacy_windows=False).print(drawn)
    return "\n".join(one.rstrip() for one in paper.getvalue().splitlines())
