"""JSON that both databases keep: any value a step may return comes back equal, from SQLite and from PostgreSQL.

PostgreSQL refuses NUL and lone surrogates, SQLite stops at NUL and raises on surrogates; both keep ASCII. So text is
stored as ASCII JSON with escapes, in which `\\u0000` and `\\ud800` are six harmless characters.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from agentruns.errors import PermanentError

compact = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"))

OUTPUT_BYTES = 10 * 2**20
DEPTH = 100
# Half of a character and its other half: JSON writes them as it writes the whole one, and reads back that.
SPLIT_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


class NotStorable(PermanentError):
    """A value that JSON cannot keep, or that is too large or too deep; says where and what to do instead."""


def dumps(value: Any, *, exact: bool = False) -> str:
    """`value` as compact ASCII JSON; NaN and infinities as the words Python's json reads back.

    Raises NotStorable for what would not come back equal: other types, keys that are not text, over 10 MB, over 100
    levels. `exact`: also for a character that came as two halves, which comes back whole; without it that is let pass.
    """
    check(value, exact=exact)
    try:
        text = compact.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotStorable(f"{error}. Return plain JSON: text, numbers, lists, dicts.") from None
    if len(text) > OUTPUT_BYTES:
        raise too_large(f"{len(text):,} bytes")
    return text


def check(value: Any, *, exact: bool) -> None:
    """Refuses what JSON would silently change: tuples become lists, keys become text, halves of a character one."""
    if type(value) is str:  # by far the most frequent
        return refuse_halves((value,)) if exact else None
    level, count = [value], 0
    for _ in range(DEPTH):
        inside: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                for key in item:
                    if not isinstance(key, str):
                        raise NotStorable(f"A dict has the key {key!r}; JSON keeps only text as keys.")
                if exact:
                    refuse_halves(item)
                inside.extend(item.values())
            elif isinstance(item, list):
                inside.extend(item)
            elif exact and isinstance(item, str):
                refuse_halves((item,))
            elif isinstance(item, tuple):
                raise NotStorable("A tuple would come back as a list. Return a list.")
            elif isinstance(item, Decimal):
                raise NotStorable(f"{item!r} is a Decimal; JSON has none. Return str(value).")
        if not inside:
            return None
        # A value takes two bytes, its comma included: a list that holds itself twice doubles with each level.
        if (count := count + len(inside)) > OUTPUT_BYTES // 2:
            raise too_large(f"{count:,} values")
        level = inside
    raise NotStorable(f"The value is nested deeper than {DEPTH} levels.")


def refuse_halves(texts: Iterable[str]) -> None:
    for text in texts:
        if not text.isascii() and SPLIT_PAIR.search(text):
            raise NotStorable(
                "A text has a character as two surrogates, which would come back as one. Join them: "
                "text.encode('utf-16', 'surrogatepass').decode('utf-16', 'surrogatepass')."
            )


def too_large(size: str) -> NotStorable:
    return NotStorable(f"{size} of JSON are over the limit of {OUTPUT_BYTES:,} bytes. Store a reference to it.")


def loads(text: str) -> Any:
    return json.loads(text)


def canonical(value: Any) -> str:
    """The one text of a value: sorted keys, so that equal values have equal hashes."""
    return json.dumps(value, ensure_ascii=True, sort_keys=True, separators=(",", ":"), default=str)


def fingerprint(value: Any) -> str:
    """SHA-256 of the canonical text, 64 hex digits."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()
