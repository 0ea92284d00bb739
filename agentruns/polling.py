"""Calls in flight, as the clock follows them: asks providers how they stand, and books what has ended.

Whoever polls first moves the call's next poll, so any number of clocks may do it. What is learned is a fact: it is
booked also for a run that was taken over or has ended.
"""

import asyncio
import logging
from typing import Any

from django.db import Error as DatabaseError
from django.db.models import BooleanField, Exists, ExpressionWrapper, F, OuterRef, Q

from agentruns import llm
from agentruns.booking import booking_of
from agentruns.errors import ModelError, ProviderStopped, ProviderTrouble, ResponseGone
from agentruns.llm import Reply
from agentruns.models import Call, Provider, Status, Step
from agentruns.models.ledger import Booking, lose, settle
from agentruns.models.moment import in_seconds, now

log = logging.getLogger(__name__)

POLLED_AT_ONCE = 200
CANCELLED_AT_ONCE = 5  # one after another, and a provider that hangs takes a minute each
FIRST_POLL_SECONDS, LONGEST_POLL_SECONDS = 2.0, 60.0
LEAST_POLL_SECONDS = 0.5
GONE_SECONDS = 30.0  # between two 404s, before a response is taken for expired
# After its deadline a call is cancelled; one that the provider does not end in this time, either, is given up.
GRACE_SECONDS = 600.0
LOST_AT_ONCE = 100

ENDED = (Status.COMPLETED, Status.CANCELLED)


def poll_calls() -> None:
    """Asks the provider for calls that are due, many at once, and books what has ended; ends what nobody wants."""
    provider = llm.provider()
    mine = [call for call in due_calls() if taken(call, provider)]
    unwanted = [call for call in mine if call.unwanted]
    wanted = [call for call in mine if not call.unwanted]
    if wanted:
        found = asyncio.run(provider.retrieve_many([call.response_id for call in wanted]))
        for call in wanted:
            each(hear, call, found[call.response_id])
    for call in unwanted[:CANCELLED_AT_ONCE]:
        each(give_up, call)


def due_calls() -> list[Any]:
    """Open calls whose time to be asked for has come, with what the database's clock says about their deadline."""
    calls = Call.objects.filter(state="submitted", poll_at__lte=now()).annotate(
        unwanted=unwanted(),
        overdue=is_true(deadline_at__lte=now()),
        hopeless=is_true(deadline_at__lte=in_seconds(-GRACE_SECONDS)),
    )
    return list(calls.select_related("run").defer("request", "partial").order_by("poll_at")[:POLLED_AT_ONCE])


def unwanted() -> ExpressionWrapper:
    """Nobody will take its answer: its run has ended, or another try of the ask was answered first."""
    taken_already = Step.objects.filter(run=OuterRef("run"), top=OuterRef("top"), path=OuterRef("path"))
    return ExpressionWrapper(Q(run__status__in=ENDED) | Exists(taken_already), output_field=BooleanField())


def is_true(**condition: Any) -> ExpressionWrapper:
    return ExpressionWrapper(Q(**condition), output_field=BooleanField())


def taken(call: Any, provider: llm.Provider) -> bool:
    """Moves the call's next poll; False: another clock has it, or it was made with another provider."""
    mine = call.provider == provider.base_url
    # The power of a call that is never settled grows until it is no number any more; then nothing would be polled.
    pause = min(FIRST_POLL_SECONDS * 1.5 ** min(call.polls, 20), LONGEST_POLL_SECONDS) if mine else LONGEST_POLL_SECONDS
    same = Call.objects.filter(pk=call.pk, state="submitted", polls=call.polls)
    if not same.update(poll_at=in_seconds(pause), polls=F("polls") + 1):
        return False
    if not mine:
        call.run.blame_provider(call.path, call.elsewhere(provider.base_url))
    return mine


def each(chore: Any, call: Call, *args: Any) -> None:
    """One call that cannot be booked must not keep the others from it."""
    try:
        chore(call, *args)
    except DatabaseError:
        raise
    except Exception:
        log.exception("Call %s of run %s: %s failed; the next poll tries again.", call.path, call.run_id, chore)


def hear(call: Any, said: Reply | ProviderTrouble | ModelError) -> None:
    if isinstance(said, ResponseGone):
        expire(call, str(said))
    elif isinstance(said, Exception):
        log.info("Call %s of run %s: %s", call.path, call.run_id, said)
        if isinstance(said, ProviderStopped):
            Provider.stop(call.provider, str(said))
    elif not said.is_open:
        settle(call, booking_of(call, said))
    elif call.overdue:
        give_up(call)
    else:
        still_open(call, said.poll_after)


def still_open(call: Any, poll_after: float | None) -> None:
    """It is there and goes on: whatever was thought of it is over. Its provider may say when to look again."""
    if poll_after is not None:
        pause = min(max(poll_after, LEAST_POLL_SECONDS), LONGEST_POLL_SECONDS)
        Call.objects.filter(pk=call.pk, state="submitted").update(poll_at=in_seconds(pause))
    if call.code == "gone":
        Call.objects.filter(pk=call.pk, state="submitted").update(code="")
    if call.run.waiting_for == "provider":
        call.run.excuse_provider(call.path)


def give_up(call: Any) -> None:
    """Cancels a call at the provider and books how it ended. What is still open then is tried again at the next poll,
    and after its deadline not for ever: it is booked at its reservation, as paid and lost."""
    reply = None
    try:
        reply = llm.provider().cancel(call.response_id)
    except ResponseGone as gone:
        expire(call, str(gone))
        return
    except (ProviderTrouble, ModelError) as error:
        log.warning("Call %s of run %s was not cancelled: %s", call.path, call.run_id, error)
    if reply is not None and not reply.is_open:
        settle(call, booking_of(call, reply))
    elif call.hopeless:
        why = "The provider neither finished the call by its deadline nor cancelled it."
        settle(call, Booking(state="expired", cost=None, error=why, code="deadline"))


def expire(call: Any, error: str) -> None:
    """404 from the address and with the key it was made with, twice, half a minute apart: paid, and lost."""
    if call.provider_key != llm.provider().key_hash:
        reason = f"{call.provider} does not know the call at {call.path}, which was made with another OPENAI_API_KEY."
        call.run.blame_provider(call.path, f"{reason} Set that key back.")
    elif call.code == "gone":
        settle(call, Booking(state="expired", cost=None, error=error, code="gone"))
    else:
        Call.objects.filter(pk=call.pk, state="submitted").update(code="gone", poll_at=in_seconds(GONE_SECONDS))


def cancel_orphans() -> None:
    """Calls in flight that nobody wants any more are due at once, to be cancelled at the provider."""
    orphans = Call.objects.filter(state="submitted").filter(unwanted()).exclude(code__in=("cancelling", "gone"))
    orphans.update(code="cancelling", poll_at=now())


def lose_orphans() -> None:
    """Intents of runs that have ended: whoever sent them is gone, and their answers will not come."""
    ended = (*ENDED, Status.FAILED)
    for call in Call.objects.filter(state="intent", run__status__in=ended).select_related("run")[:LOST_AT_ONCE]:
        lose(call, "the run ended before the answer was stored")
