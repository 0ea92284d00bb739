"""A person's word on what only a person can know: whether an effect happened, what became of a call."""

from collections.abc import Callable
from typing import Any

from django.db import transaction
from django.db.models import F, Q

from agentruns import encoding
from agentruns.errors import Refusal, WrongState
from agentruns.models import effect, ledger
from agentruns.models.call import Call
from agentruns.models.key import IdempotencyKey
from agentruns.models.moment import now
from agentruns.models.status import Status
from agentruns.models.trait import Trait
from agentruns.models.wait import Wait

WORDS = ("done", "not-done", "again")


class Settling(Trait):
    """settle."""

    def settle(self, path: str, word: str, answer: Any = None, by: Any = None) -> None:
        """Settles the unknown effect or call at `path`, audited, and wakes the run if it waits for that.

        `word`: "done" (with its `answer`, JSON; of a call its text), "not-done" (it did not happen: it may be sent), or
        "again" (nobody knows: it is sent once more under the same key, at the person's risk). Raises Refusal.
        """
        if word not in WORDS:
            raise Refusal(f"{word!r} is no word to settle by. Say one of: {', '.join(WORDS)}.")
        encoding.dumps(answer)
        with transaction.atomic():
            run: Any = self.lock()
            if run.status == Status.RUNNING:
                raise WrongState(f"Run {run.short_id} is at work; settle {path} when it waits.")
            found = self._unsettled(run, path)
            if isinstance(found, Call):
                settle_call(found, word, answer)
            else:
                settle_effect(found, word, answer)
            run.rows().filter(pk=run.pk).update(version=F("version") + 1)
            waits = Wait.objects.filter(run=run, path=path, closed_at=None)
            for_a_word = Q(kind__in=("effect", "operator")) | Q(kind="model", until__isnull=False)
            woken = waits.filter(for_a_word).update(closed_at=now(), closed_by=by)
            run.record("settled", path=path, by=by, word=word)
            if woken and run.status == Status.WAITING:
                run.wake()

    @staticmethod
    def _unsettled(run: Any, path: str) -> Call | IdempotencyKey:
        row = effect.latest(run, path)
        if row is not None and row.state in effect.UNSETTLED:
            return row
        call = Call.objects.filter(run=run, path=path, state="unknown").order_by("-number").first()
        if call is None:
            raise Refusal(f"Nothing at {path[:80]!r} of run {run.short_id} is unknown; there is nothing to settle.")
        return call


def settle_effect(row: IdempotencyKey, word: str, answer: Any) -> None:
    settled: dict[str, Callable[[], object]] = {
        "done": lambda: effect.learn(row, "done", answer),
        "not-done": lambda: effect.learn(row, "failed", {"error": "a person said so", "permanent": False}),
        "again": lambda: effect.learn(row, "unknown", {"again": True}),
    }
    settled[word]()


def settle_call(call: Call, word: str, answer: Any) -> None:
    """Done: its answer counts, at its reservation. Not done: nothing was paid. Again: the reservation stays booked."""
    if word == "done":
        text = answer if isinstance(answer, str) else encoding.dumps(answer)
        ledger.settle(
            call, ledger.Booking(state="completed", cost=None, answer={"text": text}, price_source="a person's word")
        )
    elif word == "not-done":
        ledger.settle(call, ledger.Booking(state="failed", code="not_sent", passing=True, retry_after=0))
    else:
        Call.objects.filter(pk=call.pk, state="unknown").update(code="again")
