"""From what a provider answered to the exception that says what may be done about it (errors.py).

The one question is whether something was generated, and so paid: an HTTP error says no, a connection that was never
made says no, and a request that was sent and not answered says nothing at all.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from agentruns.errors import (
    AnswerLost,
    BackgroundRefused,
    ModelError,
    ProviderBusy,
    ProviderStopped,
    ProviderTrouble,
    Refused,
    ResponseGone,
)
from agentruns.exchange import is_policy, mapping, words
from agentruns.wire import NEVER_SENT, UNSENDABLE, Line

Trouble = ProviderTrouble | ModelError

QUOTA = {
    "insufficient_quota",
    "credit_balance_exhausted",
    "organization_spend_limit_exceeded",
    "project_spend_limit_exceeded",
    "organization_usage_limit_exceeded",
    "billing_hard_limit_reached",
    "billing_not_active",
}
BUSY = {"rate_limit_exceeded", "slow_down", "server_is_overloaded"}
TOO_LONG = {"context_length_exceeded", "exceed_context_size_error"}
# Not an answer of the provider's but of a gateway whose patience ended: behind it the model may be at work, and paid.
GATEWAY_TIMEOUTS = {504, 524}
MESSAGE_CHARACTERS = 500


@dataclass(frozen=True)
class Sent:
    """One HTTP request, as far as its failure is concerned. `creates`: it asks for an answer, which may be paid."""

    provider: str
    creates: bool = False
    background: bool = False

    def refused(self, status: int, body: Any, headers: Mapping[str, str]) -> Trouble:
        """An HTTP status that is not a success; `body` is its JSON, or its `error`, or the text of a page."""
        error = mapping(mapping(body).get("error")) or mapping(body)
        code = "" if words(error, "code").isdecimal() else words(error, "code")
        kinds = {code, words(error, "type")}
        said = short(words(error, "message") or (body if isinstance(body, str) else ""))
        what = f"{self.provider} answered {status}{f' {code}' if code else ''}{f': {said}' if said else '.'}"

        if status == 402 or (status == 429 and kinds & QUOTA):
            return ProviderStopped(f"{what} Raise its limit or top up the account, then resume the provider.")
        if status == 401:
            return ProviderStopped(f"{what} Set OPENAI_API_KEY to a key that {self.provider} takes, and restart.")
        if status == 403 and code != "model_not_found":
            return ProviderStopped(f"{what} Give the key the right to create responses, or set another OPENAI_API_KEY.")
        if status in {404, 410} and not self.creates:
            return ResponseGone(what)
        if 300 <= status < 400 or (status in {404, 405} and not names_something(error, code)):
            return ProviderStopped(
                f"{what} Set OPENAI_BASE_URL to the address that has /responses (…/v1), and restart."
            )
        if status in GATEWAY_TIMEOUTS and self.creates:
            return AnswerLost(what)
        if status >= 500 or status in {408, 409, 425, 429}:
            return ProviderBusy(what, retry_after(headers))
        return self._unacceptable(what, status, error, code)

    def _unacceptable(self, what: str, status: int, error: dict[str, Any], code: str) -> Trouble:
        """400, 413, 422 and their like: this provider will never take this request."""
        if is_policy(code):
            return Refused(what, code)
        names_background = re.search(r"\bbackground\b", f"{error.get('param')} {error.get('message')}")
        if self.background and names_background:
            return BackgroundRefused(what)
        return ModelError(what, code or words(error, "type") or str(status))

    def stream_error(self, event: dict[str, Any], text: str) -> Trouble:
        """An `error` event. Before any text, one that says why is as good as a status; after it, the answer is lost."""
        error = mapping(event.get("error")) or event
        code = words(error, "code")
        said = short(words(error, "message"))
        what = (
            f"{self.provider} ended the stream with an error{f' {code}' if code else ''}: {said or 'no reason given'}"
        )
        if not text and code in QUOTA:
            return ProviderStopped(f"{what} Raise its limit or top up the account, then resume the provider.")
        if not text and code in BUSY:
            return ProviderBusy(what)
        if not text and is_policy(code):
            return Refused(what, code)
        if not text and code in TOO_LONG:
            return ModelError(what, code)
        return AnswerLost(what, text) if self.creates else ProviderBusy(what)

    def unanswered(self, cause: BaseException, line: Line | None, text: str) -> Trouble:
        """No whole answer came: its meaning hangs on whether the request had left. `text`: what a stream brought."""
        because = (line and line.cut_because) or short(str(cause)) or type(cause).__name__
        if "CERTIFICATE_VERIFY_FAILED" in because:
            return ProviderStopped(
                f"{self.provider} is not trusted: {because} Set SSL_CERT_FILE to its authority's file."
            )
        if isinstance(cause, NEVER_SENT):
            return ProviderBusy(f"No connection to {self.provider}: {because}.")
        if isinstance(cause, UNSENDABLE):
            return ProviderStopped(
                f"{self.provider} cannot be called: {because}. Set OPENAI_BASE_URL and OPENAI_API_KEY, and restart."
            )
        if line and line.response and line.response.status_code >= 300:  # its page was cut, but the status had come
            return self.refused(line.response.status_code, "", line.response.headers)
        what = f"{self.provider} gave no whole answer: {because}."
        return AnswerLost(what, text) if self.creates else ProviderBusy(what)


def names_something(error: dict[str, Any], code: str) -> bool:
    """A 404 for a model or an earlier response names it; a path that is not served names nothing."""
    return bool(code or error.get("param") or "model" in words(error, "message").lower())


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait: from retry-after-ms, or Retry-After in seconds or as a date; None when there is neither."""
    milliseconds = number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = number(value)
    if seconds is not None or not value:
        return seconds
    try:
        until = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, (until.replace(tzinfo=until.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def number(value: str | None) -> float | None:
    """A header's number, at least 0; None for none, and for what is no number."""
    try:
        parsed = float(value or "")
    except ValueError:
        return None
    return max(0.0, parsed) if math.isfinite(parsed) else None


def short(text: str) -> str:
    """One line for a person: a gateway's HTML page is not."""
    line = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", text)).strip()
    return line if len(line) <= MESSAGE_CHARACTERS else line[:MESSAGE_CHARACTERS] + "…"
