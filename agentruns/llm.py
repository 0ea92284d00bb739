"""A model provider, through the official `openai` client: submit, retrieve, cancel. The only import of `openai`.

Nothing is retried here: retries belong to the step engine, which knows what a repeated POST may cost. Every way in
which a call can go wrong leaves as one of errors.py's exceptions, and none of them contains the API key.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import httpx2
import openai
import openai.resources.responses.responses  # the client loads it at its first use, so in every forked work-horse
from django.conf import settings

from agentruns.errors import AnswerLost, ModelError, ProviderBusy, ProviderStopped, ProviderTrouble
from agentruns.exchange import Reply, Request, Usage, mapping, read_reply, response_in, status_of
from agentruns.transcript import Transcript
from agentruns.troubles import Sent, number
from agentruns.wire import Line, bound, http_options

__all__ = ["Provider", "Reply", "Request", "Usage", "provider"]

OPENAI_URL = "https://api.openai.com/v1"
CALL_SECONDS = 600.0
SILENCE_SECONDS = 120.0  # between two bytes of a stream; keepalives come every 30 s
LOOK_SECONDS = 60.0  # a retrieve or cancel, in all
LOOKS_AT_ONCE = 20
TEXT_EVERY_SECONDS = 2.0
KEY_CHARACTERS = 8  # shorter ones ("none", "demo") are no secrets, but words of our own messages


@dataclass(frozen=True)
class Provider:
    """One base URL with one key: what a Call is bound to. Equal when both are; safe to print, it hides the key."""

    base_url: str
    key_hash: str
    name: str = field(compare=False)
    _address: str = field(repr=False, compare=False)
    _key: str = field(repr=False, compare=False)
    _lines: set[Line] = field(default_factory=set, repr=False, compare=False)

    @classmethod
    def at(cls, base_url: str, key: str) -> Provider:
        """The provider at an address, called by its host; a password in the address is hidden, as the key is."""
        address = base_url.rstrip("/")
        scheme, slashes, rest = address.rpartition("://")
        host, slash, path = rest.partition("/")
        shown = scheme + slashes + host.rpartition("@")[2] + slash + path
        return cls(shown, hashlib.sha256(key.encode()).hexdigest()[:16], host.rpartition("@")[2], address, key)

    def submit(
        self,
        request: Request,
        *,
        background: bool,
        on_text: Callable[[str], None] | None = None,
        timeout_seconds: float = CALL_SECONDS,
    ) -> Reply:
        """Sends one paid POST, once, and returns what came: an open reply in background mode, else the whole answer.

        Without background mode the answer is streamed; `on_text` gets its text so far, at most every two seconds, and
        what it raises ends the call. A stream that breaks over a call that goes on is an open reply, too.
        `timeout_seconds` bounds the call in all. Raises ModelError and its kinds, or the ProviderTroubles; AnswerLost
        alone means that something may have been paid.
        """
        body = {**request.sendable(), "extra_headers": {"Idempotency-Key": request.idempotency_key}}
        with self._open(timeout_seconds) as line:
            if not background:
                return self._stream(line, body, on_text)
            with self._explained(Sent(self.name, creates=True, background=True), line):
                # A provider that does not know the flag is silent until it is done: it may be, for the whole time.
                client = self._client(line, timeout_seconds)
                return reply_of(client.responses.with_raw_response.create(**body, background=True).http_response)

    def retrieve(self, response_id: str, timeout_seconds: float = LOOK_SECONDS) -> Reply:
        """Where a background call stands. Raises ResponseGone; a failure that may pass is ProviderBusy: it is a GET."""
        with self._open(timeout_seconds) as line, self._explained(Sent(self.name), line):
            client = self._client(line, LOOK_SECONDS)
            return reply_of(client.responses.with_raw_response.retrieve(response_id).http_response)

    def cancel(self, response_id: str) -> Reply:
        """Asks to stop a background call, and returns how it ended; one that had ended keeps its (paid) answer."""
        try:
            with self._open(LOOK_SECONDS) as line, self._explained(Sent(self.name), line):
                client = self._client(line, LOOK_SECONDS)
                reply = reply_of(client.responses.with_raw_response.cancel(response_id).http_response)
        except ModelError:  # a 4xx: there was nothing to cancel any more
            return self.retrieve(response_id)
        except ProviderBusy:  # a 409 says the same, and a 5xx may follow a cancel that worked
            if (reply := self.retrieve(response_id)).is_open:
                raise
            return reply
        try:
            return self.retrieve(response_id)  # the cancel's own answer often has no usage yet
        except (ProviderTrouble, ModelError):
            return reply

    async def retrieve_many(self, response_ids: Iterable[str]) -> dict[str, Reply | ProviderTrouble | ModelError]:
        """`retrieve` for many at once, 20 in flight; what it would raise for one of them stands in its place."""
        ids = list(dict.fromkeys(response_ids))
        try:
            options = self._client_options()
        except ProviderStopped as error:
            return dict.fromkeys(ids, error)
        slots = asyncio.Semaphore(LOOKS_AT_ONCE)
        http_client = httpx2.AsyncClient(**http_options(self._address, LOOK_SECONDS), event_hooks={"response": [bound]})
        async with openai.AsyncOpenAI(**options, http_client=http_client) as client:

            async def look(response_id: str) -> Reply | ProviderTrouble | ModelError:
                try:
                    async with slots, asyncio.timeout(LOOK_SECONDS):
                        with self._explained(Sent(self.name)):
                            raw = await client.responses.with_raw_response.retrieve(response_id)
                            return reply_of(raw.http_response)
                except TimeoutError:
                    return ProviderBusy(f"{self.name} did not answer within {LOOK_SECONDS:g} s.")
                except (ProviderTrouble, ModelError) as error:
                    return error

            return dict(zip(ids, await asyncio.gather(*map(look, ids)), strict=True))

    def close_streams(self) -> None:
        """Ends what is under way in other threads, at once: a submit raises AnswerLost, a retrieve ProviderBusy."""
        for line in list(self._lines):
            line.cut("this worker is stopping")

    @contextmanager
    def _open(self, seconds: float) -> Iterator[Line]:
        with Line(seconds) as line:
            self._lines.add(line)
            try:
                yield line
            finally:
                self._lines.discard(line)

    def _client(self, line: Line, read_seconds: float) -> openai.OpenAI:
        """A client for one call. It is made where it is used, after the fork, and costs well under a millisecond."""
        options = self._client_options()
        return openai.OpenAI(**options, http_client=line.client(self._address, read_seconds))

    def _client_options(self) -> dict[str, Any]:
        """Raises ProviderStopped for a key or an address that cannot be put into a request."""
        if not (self._key.isascii() and self._key.isprintable()):
            raise ProviderStopped("OPENAI_API_KEY has characters that no key has. Set it again, and restart.")
        try:
            httpx2.URL(self._address)
        except httpx2.InvalidURL as error:
            raise ProviderStopped(f"OPENAI_BASE_URL is not an address: {error}. Set it again, and restart.") from None
        return {"api_key": self._key, "base_url": self._address, "max_retries": 0}

    def _stream(self, line: Line, body: dict[str, Any], on_text: Callable[[str], None] | None) -> Reply:
        transcript, told_at = Transcript(), -TEXT_EVERY_SECONDS
        try:
            with closing(self._events(line, body, transcript)) as events:
                for event in events:
                    if ending := transcript.add(event):
                        return read_reply(ending, brought=transcript.text)
                    if on_text and time.monotonic() - told_at >= TEXT_EVERY_SECONDS and transcript.text:
                        on_text(transcript.text)
                        told_at = time.monotonic()
            because = line.cut_because or "the stream ended early"  # to a client both are the same end of bytes
            raise AnswerLost(f"{self.name} gave no whole answer: {because}.", transcript.text)
        except AnswerLost:
            if (reply := self._look_again(line, transcript.response_id)) is None:
                raise
            return reply

    def _events(self, line: Line, body: dict[str, Any], transcript: Transcript) -> Generator[dict[str, Any]]:
        """A streamed call's events, as plain dicts.

        The client's own typed events, and its stream() helper, fail on what real providers send: keepalives before the
        first event, events without sequence numbers, event types that are newer than the client.
        """
        sent = Sent(self.name, creates=True)
        with self._explained(sent, line, text=lambda: transcript.text):
            create = self._client(line, SILENCE_SECONDS).responses.with_streaming_response.create
            with create(**body, stream=True) as raw:
                if "json" in raw.headers.get("content-type", ""):  # `stream` was ignored: the answer came whole
                    answer = response_in(raw.read())
                    yield {"type": f"response.{status_of(answer)}", "response": answer}
                    return
                for event in raw.parse(to=openai.Stream[object]):
                    if mapping(event).get("type") == "error":
                        raise sent.stream_error(mapping(event), transcript.text)
                    yield mapping(event)

    def _look_again(self, line: Line, response_id: str) -> Reply | None:
        """A stream that broke may have left its answer, or a call that goes on: one look, before anybody pays twice."""
        if not response_id or line.cut_because:
            return None
        try:
            return self.retrieve(response_id)
        except (ProviderTrouble, ModelError):
            return None  # this provider stores nothing, or is away: the stream's own failure says more

    @contextmanager
    def _explained(self, sent: Sent, line: Line | None = None, text: Callable[[], str] = lambda: "") -> Iterator[None]:
        """Turns whatever the client raises into one of ours; `from None`, because the original may quote the key."""
        try:
            yield
        except (ProviderTrouble, ModelError) as error:
            trouble: Exception = error
        except openai.APIStatusError as error:
            trouble = sent.refused(error.status_code, error.body, error.response.headers)
        except openai.APIConnectionError as error:
            trouble = sent.unanswered(error.__cause__ or error, line, text())
        except openai.APIError as error:  # what the client makes of an event with an `error` in it
            trouble = sent.stream_error(mapping(error.body) or {"message": str(error.body)}, text())
        except (openai.OpenAIError, httpx2.HTTPError, ValueError, RecursionError) as error:
            trouble = sent.unanswered(error, line, text())
        else:
            return
        if len(self._key) >= KEY_CHARACTERS:
            trouble.args = (str(trouble).replace(self._key, "[the key]"),)
        raise trouble from None


def reply_of(response: httpx2.Response) -> Reply:
    milliseconds = number(response.headers.get("openai-poll-after-ms"))
    return read_reply(response_in(response.content), poll_after=None if milliseconds is None else milliseconds / 1000)


def provider() -> Provider:
    """The provider of the settings: the demo model where no other is set, never beside one."""
    with _making:
        if settings.AGENT_DEMO:
            return _at(settings.AGENT_DEMO_URL, "demo", demo=True)
        return _at(settings.OPENAI_BASE_URL or OPENAI_URL, settings.OPENAI_API_KEY or "none", demo=False)


_making = threading.Lock()  # one object a provider: close_streams() must see what every thread has opened


@cache
def _at(base_url: str, key: str, *, demo: bool) -> Provider:
    made = Provider.at(base_url, key)
    return replace(made, name=f"demo model at {made.name}") if demo else made
