"""Responses that a provider announced by a webhook: each event once, and those kept that no call knew the id of.

An event is a row of scope "webhook": `intent` while the clock still has to find out whose response it is, `done` when
that is known, `failed` when it is nobody's here. Its `round` counts the clock's looks.
"""

import uuid
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F, Q, QuerySet

from agentruns import encoding
from agentruns.models.call import Call
from agentruns.models.key import IdempotencyKey
from agentruns.models.ledger import submitted
from agentruns.models.moment import in_seconds, now

SCOPE = "webhook"
PATIENCE_SECONDS = 86_400.0  # for an event whose response cannot be retrieved, or could be of several calls
REMEMBERED_SECONDS = 7 * 86_400.0  # longer than any provider goes on sending the same event (3 days)
LOOKED_AT_ONCE = 100
MOST_LOOKS = 18  # each as long after the event as twice the one before: the last one after more than a day


class Undecided(Exception):
    """Whose response it is cannot be said yet: a call that may have made it is still being sent."""


def keep(event_id: str, event_type: str, response_id: str) -> bool:
    """Stores the event, and makes the call of that response due to be asked for. Committed when it returns.

    False: the event was stored before, by whichever of several at once came first.
    """
    about = {"type": event_type, "response": response_id}
    try:
        with transaction.atomic(durable=True):
            row = IdempotencyKey.objects.create(
                scope=SCOPE, key=event_id, fingerprint=encoding.fingerprint(about), arguments=about, state="intent",
                created_at=now(),
            )  # fmt: skip
            if make_due(response_id):
                end(row, "done")
    except IntegrityError:
        return False
    return True


def make_due(response_id: str) -> bool:
    """Has the clock ask for the response now, if it is one of ours; False: no call knows its id."""
    mine = Call.objects.filter(response_id=response_id)
    mine.filter(state="submitted").update(poll_at=now())
    return mine.exists()


def end(row: IdempotencyKey, state: str) -> None:
    _rows().filter(pk=row.pk, state="intent").update(state=state, settled_at=now())


# --- the clock's ----------------------------------------------------------------------------------------------------


def taken() -> list[tuple[IdempotencyKey, str]]:
    """Kept events that it is time to look at (again), each handed to one clock alone, with their response's id."""
    due = Q()
    for looks in range(MOST_LOOKS):
        due |= Q(round=looks, created_at__lte=in_seconds(1 - 2**looks))
    rows = list(_rows().filter(due, state="intent").order_by("created_at")[:LOOKED_AT_ONCE])
    mine = [row for row in rows if _rows().filter(pk=row.pk, round=row.round).update(round=F("round") + 1)]
    return [(row, row.arguments["response"]) for row in mine if isinstance(row.arguments, dict)]


def forget() -> tuple[int, int]:
    """Gives up what nobody could say anything about for a day, and deletes what no provider will send again; counts."""
    old = _rows().filter(state="intent", created_at__lte=in_seconds(-PATIENCE_SECONDS))
    given_up = old.update(state="failed", settled_at=now())
    sent_no_more = _rows().filter(state__in=("done", "failed"), created_at__lte=in_seconds(-REMEMBERED_SECONDS))
    return given_up, sent_no_more.delete()[0]


def adopted(response_id: str, metadata: Any, provider: str, provider_key: str) -> Call | None:
    """Gives the response to the call that its metadata names, as its id; None: no call here can have made it.

    `metadata`: as the provider has it, {run, path, ask}. Raises Undecided. Read it after the response was retrieved:
    then the intent of the call that made it is there, for that was committed before the response existed.
    """
    if (named := _named(metadata)) is None:
        return None
    calls = Call.objects.filter(provider=provider, provider_key=provider_key, **named).order_by("number")
    if (first := calls.select_related("run").first()) is None:
        return None
    with transaction.atomic():
        first.run.lock()  # another clock may have been told of the same response by another event
        if Call.objects.filter(response_id=response_id).exists():
            raise Undecided
        open_ones = list(calls.filter(response_id="", state__in=("intent", "unknown")))
        # Of two tries one is being sent: this may be its response, or that of the one before. Soon its id says so.
        if len(open_ones) > 1 and any(call.state == "intent" for call in open_ones):
            raise Undecided
        if not open_ones or not submitted(open_ones[0], response_id):
            return None
        if open_ones[0].state == "unknown":
            first.run.record("call_adopted", path=first.path, number=open_ones[0].number)
    return Call.objects.select_related("run").get(pk=open_ones[0].pk)


def _named(metadata: Any) -> dict[str, Any] | None:
    """Which calls the metadata names: run, path, and the key of that ask; None where it is none of ours."""
    found = metadata if isinstance(metadata, dict) else {}
    run, path, ask = found.get("run"), found.get("path"), str(found.get("ask", "1"))
    try:
        run_id = uuid.UUID(str(run))
    except ValueError:
        return None
    if not isinstance(path, str) or "\0" in path or not (ask.isascii() and ask.isdecimal() and len(ask) < 6):
        return None
    return {"run_id": run_id, "path": path, "ask": int(ask)}


def _rows() -> QuerySet[IdempotencyKey]:
    return IdempotencyKey.objects.filter(scope=SCOPE)
