"""Labels: where a value came from. Checkpoint the state, not the trust: a label survives every resume."""

from collections.abc import Iterable
from typing import Any

TRUSTED = "trusted"  # code and the operator's settings
USER = "user"  # who started the run
EXTERNAL = "external"  # web, mail, files, tools: content of unknown origin
PRIVATE = "private"  # beside the others: secrets, personal data
LABELS = (TRUSTED, USER, EXTERNAL, PRIVATE)


def read(stored: Any) -> set[str]:
    """Labels as they were stored; whatever is missing or unknown reads as external."""
    if isinstance(stored, list) and stored and all(label in LABELS for label in stored):
        return set(stored)
    return {EXTERNAL}


def written(labels: Iterable[str]) -> list[str]:
    """The union in its one order; of nothing but code: trusted."""
    found = set(labels)
    return [label for label in LABELS if label in found] or [TRUSTED]
