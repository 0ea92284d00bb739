"""An outside effect under its key: the intent is a decision (fenced); whether it happened is a fact."""

from typing import Any

from django.db import transaction

from agentruns import encoding
from agentruns.models.key import IdempotencyKey
from agentruns.models.moment import in_seconds, now
from agentruns.models.wait import Grant

SCOPE = "effect"
UNSETTLED = ("intent", "unknown")


def latest(run: Any, path: str) -> IdempotencyKey | None:
    """The newest generation of the key of the effect at `path`."""
    return IdempotencyKey.objects.filter(scope=SCOPE, run=run, path=path).order_by("-pk").first()


def generations(run: Any, path: str) -> int:
    return IdempotencyKey.objects.filter(scope=SCOPE, run=run, path=path).count()


def was_begun_before_fork(run: Any, path: str) -> bool:
    """Whether a run that this one was forked from, at whatever remove, did the effect at `path`, or may have."""
    origin = run.forked_from
    while origin is not None:
        begun = IdempotencyKey.objects.filter(scope=SCOPE, run=origin, path=path).exclude(state="failed")
        if begun.exists():
            return True
        origin = origin.forked_from
    return False


def intend(run: Any, path: str, key: str, arguments: Any, grant: Grant | None = None) -> IdempotencyKey | None:
    """Commits key, fingerprint and canonical arguments, before anything is sent; None: the grant is used, or too old.

    Part of it: the fence, a living lease, no cancel or pause asked, and the grant's one use. Raises LeaseLost,
    CancelAsked, PauseAsked.
    """
    with transaction.atomic():
        run.change_living()
        if grant is not None and not grant.use():
            return None
        return IdempotencyKey.objects.create(
            scope=SCOPE, key=key, run=run, path=path, fingerprint=encoding.fingerprint(arguments),
            arguments=arguments, state="intent", created_at=now(), round=run.round,
        )  # fmt: skip


def intend_again(run: Any, row: IdempotencyKey) -> None:
    """The same key once more: its bytes are those of the row. Raises LeaseLost, CancelAsked."""
    with transaction.atomic():
        run.change_living()
        IdempotencyKey.objects.filter(pk=row.pk).exclude(state="done").update(state="intent", round=run.round)


def is_younger_than(row: IdempotencyKey, seconds: float) -> bool:
    """By the database's clock: since the first intent of this key."""
    return IdempotencyKey.objects.filter(pk=row.pk, created_at__gt=in_seconds(-seconds)).exists()


def learn(row: IdempotencyKey, state: str, answer: Any = None) -> bool:
    """What became of it: a fact, kept whoever holds the run by now. False: it was settled already."""
    return bool(
        IdempotencyKey.objects.filter(pk=row.pk, state__in=UNSETTLED).update(
            state=state, answer=answer, settled_at=now() if state in {"done", "failed"} else None
        )
    )
