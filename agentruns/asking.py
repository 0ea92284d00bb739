"""One ask, from what the ledger knows of its path to an answer: never paid again when it was paid before.

Read `Asking.answer`: each pass looks at the calls at the path and either takes an answer, waits for one, or makes the
next call (sending.py). It is the same loop on the first entry and on the hundredth, in this process or another.
"""

import random
from datetime import timedelta
from itertools import takewhile

from django.conf import settings

from agentruns import crash, encoding, trust
from agentruns.booking import booking_of
from agentruns.entry import Entry, checkpoint_row
from agentruns.errors import BadAnswer, Incomplete, MisusedContext, ModelError, Parked, ProviderTrouble, Refused
from agentruns.exchange import is_policy
from agentruns.models import Call, Wait
from agentruns.models.fields import Corrupt
from agentruns.models.ledger import lose, settle
from agentruns.models.moment import in_seconds, now
from agentruns.question import Answer, Misfit, Question, accepted
from agentruns.replay import Finished
from agentruns.sending import AT_ONCE, Sending, booked, park

PATIENT_SECONDS = 24 * 3600.0  # of passing failures of the provider, before they become the step's
LONGEST_PAUSE = 300.0
LOST = ("unknown", "cancelled", "expired")  # maybe paid, and no answer will come of it


class Asking:
    """One ask at `path`, for a function with `retries`, in the context of `labels`."""

    def __init__(self, entry: Entry, path: str, question: Question, retries: int, labels: set[str]) -> None:
        self.entry, self.path, self.question, self.retries = entry, path, question, retries
        self.labels = set(labels) or {trust.TRUSTED}
        self.sending = Sending(entry, path, question, self.labels)

    def answer(self) -> tuple[Answer, set[str]]:
        """The answer and its labels. Leaves by a Parked when it has to be waited for."""
        if (row := self.entry.replayed(self.path, "ask")) is not None:
            return self.again(row), trust.read(row.labels)
        while True:
            call = self.current()
            if call is None:
                self.sending.begin(ask=1)
            elif call.state == "completed":
                try:
                    return self.take(call), self.labels_of(call)
                except Misfit as misfit:
                    self.ask_again_after(misfit, call)
                except Refused:
                    self.ask_again_in_a_new_round(call)
            else:
                self.go_on_from(call)
            self.reload()

    def calls(self) -> list[Call]:
        return self.entry.calls[self.path]

    def current(self) -> Call | None:
        """The call that counts: of the last ask the answer that came first, else the last try.

        Two tries of one ask may both be paid: the first was unknown, and its answer came late.
        """
        if not (calls := self.calls()):
            return None
        answers = [one for one in calls if one.ask == calls[-1].ask and one.state == "completed"]
        return min(answers, key=lambda one: (one.settled_at, one.number), default=calls[-1])

    def reload(self) -> None:
        """What the ledger says by now: the clock may have been first."""
        self.entry.calls[self.path] = list(Call.objects.filter(run=self.entry.run, path=self.path).order_by("number"))

    # --- an answer is there --------------------------------------------------------------------------------------

    def take(self, call: Call) -> Answer:
        """Makes the completed call this ask's answer; its Step goes into the next checkpoint.

        One that cannot be read stops the run by name: nothing is made from it, and it is not paid again unasked.
        """
        if isinstance(unread := call.answered(), Corrupt):
            reason = f"The stored answer at {self.path} cannot be read ({unread.reason}). Repair it, then retry."
            park(self.entry, "operator", self.path, reason=reason)
        answer, stored = accepted(call, self.question)
        self.entry.compare(self.path, call.fingerprint, self.fingerprint())
        row = checkpoint_row(self.entry, self.path, "ask", stored, self.labels_of(call), call.created_at)
        self.entry.learn(row)
        del self.entry.calls[self.path]
        crash.point("answer-read")
        return answer

    def labels_of(self, call: Call) -> set[str]:
        """Of the context that asked for it, which a later entry need not meet again, and of this one."""
        return trust.read(call.labels) | self.labels

    def again(self, row: Finished) -> Answer:
        """The answer that an earlier entry took, whatever the code would ask by now."""
        self.entry.compare(self.path, self.entry.steps.asked(self.path), self.fingerprint())
        stored = self.entry.value_of(row)
        try:
            return Answer.of(stored, self.question)
        except ValueError as error:
            raise MisusedContext(
                f"The stored answer at {self.path} does not fit its schema by now: {str(error)[:500]} Fork the run "
                "from there to ask anew, or let the schema take it."
            ) from error

    def fingerprint(self) -> str:
        """Of what the code asks now; the same for every try."""
        return self.sending.request(ask=1).fingerprint()

    def ask_again_after(self, misfit: Misfit, call: Call) -> None:
        """Up to the step's retries a round; then the last answer is handed to the author in the exception."""
        bad = {one.ask for one in self.calls() if one.round == self.entry.run.round and one.state == "completed"}
        if len(bad) > self.retries:
            text = call.reply().get("text", "")
            raise BadAnswer(f"{len(bad)} answers were refused; the last one: {misfit}", text)
        self.sending.begin(ask=call.ask + 1)

    def ask_again_in_a_new_round(self, call: Call) -> None:
        """What ended for good is raised again in its round, unpaid; after a person's retry it is asked anew."""
        if call.round == self.entry.run.round:
            raise final_error(call)
        self.sending.begin(ask=call.ask + 1)

    # --- an earlier call is there, without an answer ------------------------------------------------------------

    def go_on_from(self, call: Call) -> None:
        """The next move after a call that is open, lost, or ended badly. Raises what is final in this round."""
        if call.state == "intent":
            # Written by an earlier entry, or lost by this one: it may have been sent, and paid.
            booked(lambda: lose(call, "the worker ended before the answer was stored"))
        elif call.state == "submitted":
            self.look_at(call)
        elif call.state in LOST:
            self.begin_after_loss(call)
        elif call.passing:
            self.begin_after_pause(call)
        else:
            self.ask_again_in_a_new_round(call)

    def look_at(self, call: Call) -> None:
        """A short wait in this worker; then the run parks, and the clock goes on asking."""
        provider = self.sending.provider
        if call.provider != provider.base_url:
            park(self.entry, "provider", self.path, reason=call.elsewhere(provider.base_url))
        if self.entry.patience() <= 0:
            park(self.entry, "model", self.path)
        self.entry.boundary()
        try:
            reply = provider.retrieve(call.response_id, timeout_seconds=max(self.entry.patience(), 1.0))
        except (ProviderTrouble, ModelError):
            park(self.entry, "model", self.path)  # the clock asks on, and books what there is
        if not reply.is_open:
            booked(lambda: settle(call, booking_of(call, reply)))
        else:
            self.entry.authority.pause(min(reply.poll_after or 0.5, max(self.entry.patience(), 0)))

    def begin_after_loss(self, call: Call) -> None:
        """Once more, marked; a second loss in a row is for a person.

        Of an unknown call nobody knows how it ended: the same key and bytes, so that a provider that honours the key
        gives its answer. How the others ended is known: they are asked anew.
        """
        here = [one for one in self.calls() if one.round == self.entry.run.round and not one.passing]
        lost_in_a_row = list(takewhile(lambda one: one.state in LOST, reversed(here)))
        if len(lost_in_a_row) > 1:
            park(
                self.entry, "operator", self.path,
                reason=f"Two calls in a row at {self.path} got no answer; each may have been paid. Retry to ask again.",
            )  # fmt: skip
        if call.state == "unknown":
            self.wait_for_word_of(call)
            self.sending.begin(ask=call.ask, again=call, maybe_twice=True)
        else:
            self.sending.begin(ask=call.ask + 1, maybe_twice=True)

    def wait_for_word_of(self, call: Call) -> None:
        """Parks once for AGENT_UNKNOWN_SECONDS, if a webhook may yet bring the id of `call`, and its answer.

        Providers announce background calls alone. After a person's "again" nobody waits.
        """
        told = settings.OPENAI_WEBHOOK_SECRET and call.background and call.provider == self.sending.provider.base_url
        if not told or call.code == "again":
            return
        mark = encoding.fingerprint({"unknown": call.number})
        # Whatever else wakes the run meanwhile closes the wait: then the rest of its time is waited for.
        before = Wait.objects.filter(run=self.entry.run, path=self.path, payload_sha256=mark).order_by("pk")
        if before.filter(until__lte=now()).exists():
            return
        reason = f"Nobody knows whether the call at {self.path} was made. The provider may say so; else it is repeated."
        wait = Wait(path=self.path, kind="model", payload={"unknown": call.number}, payload_sha256=mark)
        if (first := before.first()) is None:
            wait.seconds = settings.AGENT_UNKNOWN_SECONDS  # type: ignore[attr-defined]
        else:
            wait.until = first.until
        self.entry.close(Parked(wait, reason=reason))

    def begin_after_pause(self, call: Call) -> None:
        """A passing failure of the provider uses up no retry of the step: the run parks until it may be over."""
        if call.round == self.entry.run.round and call.code not in AT_ONCE:
            self.wait_out(call)
        if call.response_id:  # it was taken, and then failed: its key would bring the same failure
            self.sending.begin(ask=call.ask + 1)
        else:
            self.sending.begin(ask=call.ask, again=call)

    def wait_out(self, call: Call) -> None:
        """Parks until the provider's Retry-After, or 2 s doubling to 5 min, has passed since `call` failed."""
        here = [one for one in self.calls() if one.round == self.entry.run.round and one.code not in AT_ONCE]
        failed_in_a_row = list(takewhile(lambda one: one.passing, reversed(here)))
        if was_before(failed_in_a_row[-1], PATIENT_SECONDS):
            raise final_error(call)
        pause = call.retry_after
        if pause is None:
            # The same on every look: a pause drawn anew would be waited for again and again.
            jitter = random.Random(call.pk).uniform(0.8, 1.2)  # noqa: S311
            pause = min(2.0 * 2 ** (len(failed_in_a_row) - 1), LONGEST_PAUSE) * jitter
        pause = min(pause, PATIENT_SECONDS)
        if call.settled_at is not None and not was_before(call, pause):
            until = call.settled_at + timedelta(seconds=pause)
            park(self.entry, "retry", self.path, until=until, reason=f"The provider is busy: {call.error}")


def was_before(call: Call, seconds: float) -> bool:
    """Whether `call` ended more than `seconds` ago, by the database's clock: this host's own may be wrong."""
    return Call.objects.filter(pk=call.pk, settled_at__lte=in_seconds(-seconds)).exists()


def final_error(call: Call) -> ModelError:
    """What an ask raises for a call that ended without an answer."""
    reply = call.reply()
    if refusal := reply.get("refusal"):
        return Refused(f"The model declined: {refusal[:500]}", "refusal")
    if call.state == "incomplete":
        why = reply.get("incomplete") or "cut short"
        return Incomplete(f"The answer at {call.path} ended early ({why}).", why, reply.get("text", ""))
    message = f"The call at {call.path} failed: {call.error or call.code}"
    kind = Refused if call.code == "Refused" or is_policy(call.code) else ModelError
    return kind(message, call.code)
