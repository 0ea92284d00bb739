"""A new call of an ask: its intent, the paid POST, and what came of it, in this order and each committed.

Between two of these a process may die. After the intent: the call may have been sent, and is unknown to whoever comes
next. After the id: nothing is lost. What a provider said is a fact and is booked whoever holds the run by then.
"""

import contextlib
import time
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any, NoReturn

from django.conf import settings
from django.db import Error as DatabaseError
from django.db import InterfaceError, OperationalError, connection
from django.utils import timezone

from agentruns import crash, encoding, llm, pricing, trust
from agentruns.booking import booking_of, refusal_of, stored
from agentruns.entry import Entry
from agentruns.errors import (
    AnswerLost,
    BackgroundRefused,
    Interruption,
    MisusedContext,
    ModelError,
    Parked,
    ProviderBusy,
    ProviderStopped,
    ProviderTrouble,
    StepTimeout,
    UnknownPrice,
)
from agentruns.models import Call, Price, Provider, Run, Wait
from agentruns.models.ledger import NoRoom, lose, settle, submitted
from agentruns.models.moment import in_seconds
from agentruns.models.spending import book_usage
from agentruns.question import Question, repeated

CALL_DEADLINE_SECONDS = 2 * 3600  # a background call that is still open then is cancelled and asked again
# What a provider said is worth more than our patience: a database that is away is waited for so long, in seconds.
FACT_SECONDS = 60.0
# Failures after which the same call is sent again at once: the provider was not busy.
AT_ONCE = ("no_background", "stopped", "unsent")
PARTIAL_CHARACTERS = 20_000


class Sending:
    """Makes the calls of one ask at `path`."""

    def __init__(self, entry: Entry, path: str, question: Question, labels: set[str]) -> None:
        self.entry, self.path, self.question, self.labels = entry, path, question, labels
        self.provider = llm.provider()

    def begin(self, *, ask: int, again: Call | None = None, maybe_twice: bool = False) -> None:
        """Commits the intent of a call, sends it, and books what came back.

        `again`: the call that is repeated, under its key. Then its own bytes are sent, even if the code would ask
        something else by now: a provider that knows the key refuses it with other bytes, and may have the answer.
        """
        self.question.refuse_misuse()
        self.entry.boundary()
        if self.time_left() <= 0:  # the heartbeat is about to say so; a call begun now would be paid and cut off
            self.entry.close(StepTimeout(f"step {self.entry.path} ran over {self.entry.step.timeout:g} s"))
        request = self.request(ask) if again is None else repeated(again) or self.request(ask)
        background = self.use_background(request.model)
        labels = self.labels if again is None else self.labels | trust.read(again.labels)
        about = {"ask": ask, "background": background, "maybe_twice": maybe_twice, "labels": trust.written(labels)}
        call = self.intended(request, about)
        self.entry.calls[self.path].append(call)
        try:
            self.entry.authority.living()  # the commit may have taken longer than the lease
        except Interruption as why:
            unsent = refusal_of(why, code="unsent", passing=True)
            booked(lambda: settle(call, unsent))
            raise
        crash.point("reserved")
        self.send(call, request, background)

    def request(self, ask: int) -> llm.Request:
        """What the code asks now. Nothing in it differs between two tries of one ask but the attempt."""
        question, run = self.question, self.entry.run
        key = f"{run.pk}:{self.path}" + (f"~{ask}" if ask > 1 else "")
        return llm.Request(
            model=question.model, input=question.prompt, instructions=question.instructions,
            max_output_tokens=question.max_output_tokens or settings.AGENT_MAX_OUTPUT_TOKENS, tools=question.tools,
            schema=question.json_schema, schema_name=self.path.rsplit("/", 1)[-1], idempotency_key=key,
            metadata={"run": str(run.pk), "path": self.path, "attempt": str(self.entry.number), "ask": str(ask)},
        )  # fmt: skip

    def use_background(self, model: str) -> bool:
        if settings.AGENT_BACKGROUND != "auto":
            return bool(settings.AGENT_BACKGROUND == "on")
        return Provider.can_background(self.provider.base_url, model)

    # --- the intent ---------------------------------------------------------------------------------------------

    def intended(self, request: llm.Request, about: dict[str, Any]) -> Call:
        """The Call, committed with its reservation. A lost COMMIT is looked up: an intent that nobody sent would be
        taken for one that may have been paid."""
        price, worst = self.priced(request)
        number = max((call.number for call in self.entry.calls[self.path]), default=0) + 1
        made: list[Call] = []

        def call() -> Call:
            return Call(
                path=self.path, top=self.entry.path, round=self.entry.run.round, attempt=self.entry.number,
                model=request.model, provider=self.provider.base_url, provider_key=self.provider.key_hash,
                key=request.idempotency_key, fingerprint=request.fingerprint(), request=request.body(),
                reserved=worst, price=stored(price), price_source=price.source[:60],
                deadline_at=in_seconds(CALL_DEADLINE_SECONDS), **about,
            )  # fmt: skip

        def landed() -> bool:
            made.extend(Call.objects.filter(run=self.entry.run, path=self.path, number=number))
            return bool(made)

        try:
            self.entry.persist(lambda: made.append(self.entry.run.intend(call())), landed)
        except NoRoom as no_room:
            park(self.entry, no_room.kind, self.path, seconds=no_room.seconds, reason=no_room.reason, **no_room.about)
        return made[-1]

    def priced(self, request: llm.Request) -> tuple[pricing.Price, Decimal]:
        """The price that the call is made at, and the most that it can cost (USD)."""
        override = Price.override(request.model)
        try:
            return pricing.price_of(request.model, override), pricing.worst(
                request.model, input_bytes=len(encoding.canonical(request.body())),
                max_output_tokens=request.max_output_tokens, override=override,
            )  # fmt: skip
        except UnknownPrice as unknown:
            park(self.entry, "price", self.path, reason=str(unknown), model=request.model)

    # --- the POST -----------------------------------------------------------------------------------------------

    def send(self, call: Call, request: llm.Request, background: bool) -> None:
        """The paid POST. Whatever comes of it is booked before anything is decided by it."""
        reply: llm.Reply | None = None
        try:
            reply = self.provider.submit(
                request, background=background, on_text=partial_keeper(call), timeout_seconds=max(self.time_left(), 1.0)
            )
            crash.point("model-answered")
            self.book(call, reply, background)
        except Interruption as why:  # the heartbeat raises it in this thread: the step's time is over, or the claim
            if reply is not None:
                self.book(call, reply, background)
            else:
                reason = f"{self.entry.closed or why} before the answer came"
                booked(lambda: lose(call, reason))
            raise
        except (ProviderTrouble, ModelError) as trouble:
            self.book_trouble(call, trouble)

    def book(self, call: Call, reply: llm.Reply, background: bool) -> None:
        if not reply.is_open:
            booked(lambda: settle(call, booking_of(call, reply)))
        elif reply.response_id:
            booked(lambda: submitted(call, reply.response_id))
        else:
            booked(lambda: lose(call, "the provider gave no id to ask for the answer by"))
        if background and reply.status != "failed":  # a provider that does not know the flag answers in the POST
            Provider.learn(self.provider.base_url, call.model, background=reply.is_open)
        if Provider.reopen(self.provider.base_url):
            Run.wake_waiting("provider")

    def book_trouble(self, call: Call, trouble: ProviderTrouble | ModelError) -> None:
        """A POST that brought no reply: lost, to be sent again, or refused for good."""
        if isinstance(trouble, AnswerLost):
            booked(lambda: lose(call, str(trouble), trouble.text[-PARTIAL_CHARACTERS:]))
            return
        match trouble:
            case BackgroundRefused():  # with AGENT_BACKGROUND=on the next try would be the same
                booking = refusal_of(trouble, code="no_background", passing=settings.AGENT_BACKGROUND != "on")
            case ProviderStopped():
                booking = refusal_of(trouble, code="stopped", passing=True)
            case ProviderBusy():
                booking = refusal_of(trouble, code="busy", passing=True, retry_after=trouble.retry_after)
            case _:
                booking = refusal_of(trouble, code=getattr(trouble, "code", "") or type(trouble).__name__)
        booked(lambda: settle(call, booking))
        if isinstance(trouble, BackgroundRefused):
            Provider.learn(self.provider.base_url, call.model, background=False)
        elif isinstance(trouble, ProviderStopped):
            Provider.stop(self.provider.base_url, str(trouble))

    def time_left(self) -> float:
        """Seconds; a call may take as long as its step: the heartbeat ends both."""
        return self.entry.step.timeout - (timezone.now() - self.entry.started_at).total_seconds()


def book_outside(entry: Entry, path: str, model: str, input_tokens: int, output_tokens: int) -> None:
    """What was paid outside `ask`, once an attempt. A model without a price is waited for, as in an ask."""
    if min(input_tokens, output_tokens) < 0:
        raise MisusedContext(f"usage of {input_tokens} and {output_tokens} tokens: give counts, 0 or more.")
    tokens = (input_tokens, output_tokens)
    try:
        booked(lambda: book_usage(entry.run, path, entry.path, entry.number, model, *tokens))
    except UnknownPrice as unknown:
        park(entry, "price", path, reason=str(unknown), model=model)


def park(
    entry: Entry,
    kind: str,
    path: str,
    *,
    seconds: float | None = None,
    until: datetime | None = None,
    reason: str = "",
    **about: Any,
) -> NoReturn:
    """Leaves the entry: the run waits at `path`, for `seconds` or `until` then at most."""
    payload = ({"reason": reason} if reason else {}) | about
    wait = Wait(path=path, kind=kind, payload=payload or None, until=until)
    wait.seconds = seconds  # type: ignore[attr-defined]
    entry.close(Parked(wait, reason=reason))


def booked(write: Callable[[], object]) -> None:
    """Writes a fact; a database that is away is waited for. No lease is needed, and a second writing changes nothing.

    Without it one dropped connection between the POST and its id would be a call paid twice.
    """
    ends, pause = time.monotonic() + FACT_SECONDS, 0.1
    while True:
        try:
            write()
            return
        except (OperationalError, InterfaceError):
            connection.close()
            if time.monotonic() > ends:
                raise
            time.sleep(pause)
            pause = min(pause * 2, 2)


def partial_keeper(call: Call) -> Callable[[str], None]:
    """Stores a stream's text so far, for the page; at most every two seconds, as the provider hands it out."""

    def keep(text: str) -> None:
        # The text is for the page: a database that is away must not end a stream that is being paid for.
        with contextlib.suppress(DatabaseError):
            Call.objects.filter(pk=call.pk, state__in=("intent", "submitted")).update(
                partial=text[-PARTIAL_CHARACTERS:]
            )

    return keep
