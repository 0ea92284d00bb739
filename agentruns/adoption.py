"""Responses that a webhook announced before any call had their id: the clock retrieves them, and asks whose they are.

What made them is gone: a worker that died between sending a call and learning its id. The call that it had committed
before gets the id, and the answer, instead of being paid a second time.
"""

import asyncio
import logging

from django.db import Error as DatabaseError

from agentruns import llm
from agentruns.booking import booking_of
from agentruns.errors import ModelError, ProviderTrouble
from agentruns.llm import Reply
from agentruns.models import IdempotencyKey, announced
from agentruns.models.ledger import settle

log = logging.getLogger(__name__)


def adopt_announced() -> None:
    """Looks at kept events that are due, and gives up those that nobody could say anything about for a day."""
    if given_up := announced.forget()[0]:
        log.warning("%d announced responses could not be given to a call for a day; given up.", given_up)
    strangers: dict[str, list[IdempotencyKey]] = {}
    for row, response_id in announced.taken():
        if announced.make_due(response_id):  # the worker lives, and has stored the id meanwhile
            announced.end(row, "done")
        else:
            strangers.setdefault(response_id, []).append(row)
    if not strangers:
        return
    provider = llm.provider()
    found = asyncio.run(provider.retrieve_many(strangers))
    for response_id, rows in strangers.items():
        try:
            state = whose(provider, response_id, found[response_id])
            for row in rows if state else ():
                announced.end(row, state)
        except DatabaseError:
            raise
        except Exception:
            log.exception("The announced response %s was not given to a call; the next look tries again.", response_id)


def whose(provider: llm.Provider, response_id: str, said: Reply | ProviderTrouble | ModelError) -> str:
    """What becomes of the events of a response: "done" (a call has it), "failed" (nobody here has), "" (look again)."""
    if isinstance(said, Exception):
        log.info("The announced response %s: %s", response_id, said)
        return ""
    metadata = said.body.get("metadata")
    try:
        call = announced.adopted(response_id, metadata, provider.base_url, provider.key_hash)
    except announced.Undecided:
        return ""
    if call is None:
        log.info("The announced response %s is no call's here.", response_id)
        return "failed"
    log.info("Call %s #%d of run %s has its response: %s.", call.path, call.number, call.run_id, response_id)
    if not said.is_open:
        settle(call, booking_of(call, said))  # else it is in flight, as any other
    return "done"
