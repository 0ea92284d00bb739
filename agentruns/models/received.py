"""Requests that others sent under an Idempotency-Key: who does the work, and what the next one is answered.

A row's `round` is its fence: it grows whenever somebody begins the work, and only that one may finish or free the key.
"""

from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import BooleanField, ExpressionWrapper, F, Q, QuerySet

from agentruns.models.key import IdempotencyKey
from agentruns.models.moment import in_seconds, now

SCOPE = "received"


class AtWork(Exception):
    """The key is another request's by now: it is being answered there."""


def begin(key: str, fingerprint: str, *, about: Any, life: float, stale: float) -> tuple[IdempotencyKey, bool]:
    """The row under `key`, and whether it is the caller's to do the work. Committed before it returns.

    His, if the row is new, `life` seconds old (then it is as good as new), or left at work for `stale` seconds.
    Raises AtWork.
    """
    over = Q(created_at__lte=in_seconds(-life))
    over |= Q(state="intent", fingerprint=fingerprint, created_at__lte=in_seconds(-stale))
    is_over = ExpressionWrapper(over, BooleanField())
    while True:
        row = _rows().filter(key=key).annotate(is_over=is_over).first()
        if row is None:
            if (new := _insert(key, fingerprint, about)) is not None:
                return new, True
        elif row.is_over:
            _take_over(row, over, fingerprint, about)
            return row, True
        else:
            return row, False


def _insert(key: str, fingerprint: str, about: Any) -> IdempotencyKey | None:
    """None: somebody was first."""
    try:
        with transaction.atomic(durable=True):
            return IdempotencyKey.objects.create(
                scope=SCOPE, key=key, fingerprint=fingerprint, arguments=about, state="intent", created_at=now()
            )
    except IntegrityError:
        return None


def _take_over(row: IdempotencyKey, over: Q, fingerprint: str, about: Any) -> None:
    """One conditional write. Raises AtWork: somebody was first, or whoever is at work has the row locked (`lock`)."""
    same = _rows().filter(over, pk=row.pk, round=row.round)
    with transaction.atomic(durable=True):
        taken = _rows().filter(pk__in=same.select_for_update(skip_locked=True).values("pk")).update(
            round=F("round") + 1, fingerprint=fingerprint, arguments=about, state="intent", answer=None,
            created_at=now(), settled_at=None,
        )  # fmt: skip
    if not taken:
        raise AtWork
    row.round += 1


def lock(row: IdempotencyKey) -> None:
    """Until the transaction ends nobody else may take the key over. Raises AtWork.

    A write, not a SELECT … FOR UPDATE: SQLite has no such thing, and a transaction there that reads first may fail.
    """
    if not _mine(row).update(state="intent"):
        raise AtWork


def finish(row: IdempotencyKey, answer: Any) -> None:
    """Stores the answer that every later request gets. Raises AtWork."""
    if not _mine(row).update(state="done", answer=answer, settled_at=now()):
        raise AtWork


def free(row: IdempotencyKey) -> None:
    """Nothing came of it: the next request with this key is a first one."""
    _mine(row).delete()


def _mine(row: IdempotencyKey) -> QuerySet[IdempotencyKey]:
    return _rows().filter(pk=row.pk, round=row.round, state="intent")


def _rows() -> QuerySet[IdempotencyKey]:
    return IdempotencyKey.objects.filter(scope=SCOPE)
