"""Tokens and money of the demo provider: counted from the text, so that a test can predict them; prices invented."""

import hashlib
from collections.abc import Iterator
from decimal import Decimal
from typing import NamedTuple

CHARACTERS = 4  # a token, about
# The vendor caches whole blocks of 128 tokens from 1,024 on. Demo prompts are short; with 32 they show some hits.
BLOCK_TOKENS = 32
MILLION = Decimal(1_000_000)

# USD per million tokens, the same numbers as pricing.py has for the demo model.
INPUT_PRICE = Decimal("1.00")
OUTPUT_PRICE = Decimal("4.00")
CACHED_PRICE = Decimal("0.10")


class Usage(NamedTuple):
    """`cached` is inside `input`, `reasoning` is inside `output`, as the vendor counts."""

    input: int
    cached: int
    output: int
    reasoning: int

    @property
    def cost(self) -> Decimal:
        """USD."""
        fresh = self.input - self.cached
        return (fresh * INPUT_PRICE + self.cached * CACHED_PRICE + self.output * OUTPUT_PRICE) / MILLION

    def as_json(self) -> dict:
        return {
            "input_tokens": self.input,
            "input_tokens_details": {"cached_tokens": self.cached, "cache_write_tokens": 0},
            "output_tokens": self.output,
            "output_tokens_details": {"reasoning_tokens": self.reasoning},
            "total_tokens": self.input + self.output,
        }


def count(text: str) -> int:
    return -(-len(text) // CHARACTERS)


def prefixes(text: str) -> Iterator[bytes]:
    """One digest for each whole block of the prompt's beginning; two prompts share them as far as they agree."""
    running = hashlib.sha256()
    step = BLOCK_TOKENS * CHARACTERS
    for start in range(0, len(text) - step + 1, step):
        running.update(text[start : start + step].encode("utf-8", "surrogatepass"))
        yield running.digest()[:16]


def fraction(seed: str, text: str) -> float:
    """A number in [0, 1) that only the two texts decide: the demo's only source of chance."""
    digest = hashlib.sha256(f"{seed}\0{text}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:6]) / 2**48
