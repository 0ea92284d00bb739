"""Large values, kept once under their SHA-256 and loaded only when read."""

import hashlib
from collections.abc import Iterable
from typing import Any

from django.db import models

from agentruns import encoding
from agentruns.models.fields import Corrupt, decoded

# Values up to 2 KB (and their JSON quotes) stay in their own row: one insert less for most checkpoints.
INLINE_BYTES = 2 * 1024 + 64


class Body(models.Model):
    """The encoded text of one large value; retention deletes bodies, never the rows that refer to them."""

    sha256 = models.CharField(primary_key=True, max_length=64)
    content = models.TextField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name_plural = "bodies"

    def __str__(self) -> str:
        return self.sha256[:12]

    @classmethod
    def split(cls, value: Any) -> tuple[Any, "Body | None"]:
        """Where `value` belongs: (the value, None) in its own row, or (None, a Body that is not stored yet).

        Raises NotStorable for what would not come back equal.
        """
        body = cls.beside(encoding.dumps(value, exact=True))
        return (value, None) if body is None else (None, body)

    @classmethod
    def beside(cls, text: str) -> "Body | None":
        """The Body, not stored yet, of an encoded value that is too large for its own row."""
        if len(text) <= INLINE_BYTES:
            return None
        return cls(sha256=hashlib.sha256(text.encode()).hexdigest(), content=text)

    @classmethod
    def keep(cls, value: Any) -> tuple[Any, "Body | None"]:
        """As `split`, and the body is stored."""
        inline, body = cls.split(value)
        if body is not None:
            cls.store([body])
        return inline, body

    @classmethod
    def store(cls, bodies: Iterable[Any]) -> None:
        """Inserts those that are not there yet; part of the transaction that refers to them."""
        cls.objects.bulk_create(bodies, ignore_conflicts=True)

    @classmethod
    def read(cls, sha256: str) -> Any:
        """The value of the body `sha256`; Corrupt when that is gone, or is not what was stored."""
        body = cls.objects.filter(pk=sha256).first()
        return body.value() if body else Corrupt("", f"its body {sha256[:12]} is gone")

    def value(self) -> Any:
        if hashlib.sha256(self.content.encode()).hexdigest() != self.sha256:
            return Corrupt(self.content, "its SHA-256 is not the one it was stored under")
        return decoded(self.content)
