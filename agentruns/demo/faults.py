"""Failures on request: `[demo: 429 retry-after=2 times=1]` in a prompt, or the same through POST /_demo/faults.

A fault may carry `times=N` (then no more), `match=WORD` (only prompts that contain the word, directives aside) and
`on=create|retrieve|cancel` (where it strikes, create if not said). Three kinds, by when they strike:

refused   nothing is accepted or billed      429 500 503 … quota badkey forbidden nomodel reset
outcome   billed; the response itself        fail incomplete refuse slow stuck gone empty nousage huge
reply     billed; only the reply is hurt     hang drop garbage truncate drip; of streams also unfinished keepalive error
"""

import re
from typing import Any, NamedTuple

OUTCOMES = frozenset({"fail", "incomplete", "refuse", "slow", "stuck", "gone", "empty", "nousage", "huge"})
REPLIES = frozenset({"hang", "drop", "garbage", "truncate", "drip", "unfinished", "keepalive", "error"})
MOMENTS = ("create", "retrieve", "cancel")

# What a refusal answers: status, type, code, message.
REFUSALS = {
    "quota": (
        429,
        "insufficient_quota",
        "credit_balance_exhausted",
        "You exceeded your current quota, please check your plan and billing details.",
    ),
    "badkey": (401, "invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    "forbidden": (403, "invalid_request_error", "permission_denied", "You have insufficient permissions."),
    "nomodel": (
        404,
        "invalid_request_error",
        "model_not_found",
        "The model does not exist or you have no access to it.",
    ),
    "400": (400, "invalid_request_error", "invalid_prompt", "Invalid prompt."),
    "429": (429, "rate_limit_exceeded", "rate_limit_exceeded", "Rate limit reached. Please try again later."),
    "503": (503, "service_unavailable_error", "server_is_overloaded", "The server is overloaded."),
}

DIRECTIVE = re.compile(r"\[demo:\s*([^\]\n]{1,200})\]", re.IGNORECASE)


class Fault(NamedTuple):
    """One failure to play: its name, its argument (`server_error` of `fail server_error`) and its options."""

    name: str
    argument: str
    options: dict[str, str]

    @property
    def kind(self) -> str:
        if self.name in OUTCOMES:
            return "outcome"
        return "reply" if self.name in REPLIES else "refused"

    @property
    def moment(self) -> str:
        return self.options.get("on", "create")

    @property
    def times(self) -> int | None:
        """How often it strikes; None is always."""
        return int(self.options["times"]) if "times" in self.options else None

    @property
    def retry_after(self) -> str | None:
        return self.options.get("retry-after")

    def seconds(self, default: float) -> float:
        return float(self.argument or default)

    @property
    def directive(self) -> str:
        return " ".join([self.name, self.argument, *(f"{key}={value}" for key, value in sorted(self.options.items()))])


class UnknownFault(ValueError):
    """A directive that names no fault, or an option that is none; the message lists what there is."""


def parse(text: str) -> Fault:
    """`429 retry-after=2` as a Fault. Raises UnknownFault."""
    words = text.split()
    plain = [word for word in words if "=" not in word]
    options = dict(word.split("=", 1) for word in words if "=" in word)
    name = plain[0].lower() if plain else ""
    known = name in OUTCOMES | REPLIES | REFUSALS.keys() | {"reset"} or re.fullmatch(r"[45]\d\d", name)
    if not known:
        names = ", ".join(sorted(OUTCOMES | REPLIES | REFUSALS.keys() | {"reset"}))
        raise UnknownFault(f"No fault is called {name!r}. Faults: {names}, or any status from 400 to 599.")
    check_options(name, plain[1:], options)
    return Fault(name, plain[1].strip(",") if len(plain) > 1 else "", options)


def check_options(name: str, arguments: list[str], options: dict[str, str]) -> None:
    if unknown := options.keys() - {"times", "match", "on", "retry-after"}:
        raise UnknownFault(f"{name} has no option {sorted(unknown)[0]!r}. Options: times, match, on, retry-after.")
    if options.get("on", "create") not in MOMENTS:
        raise UnknownFault(f"on={options['on']} is no moment. Moments: {', '.join(MOMENTS)}.")
    if name in OUTCOMES and options.get("on", "create") != "create":
        raise UnknownFault(f"{name} happens to the response itself, so only on=create.")
    if not options.get("times", "1").isdecimal():
        raise UnknownFault(f"times={options['times']} is not a number.")
    if name in {"slow", "hang", "huge", "drip"} and arguments and not re.fullmatch(r"\d+(\.\d+)?", arguments[0]):
        raise UnknownFault(f"{name} {arguments[0]}: not a number.")


def directives(text: str) -> list[Fault]:
    """The faults that a prompt asks for, in order. Raises UnknownFault: a typo must not look like health."""
    return [parse(found) for found in DIRECTIVE.findall(text)]


def without_directives(text: str) -> str:
    """The prompt as the model reads it, so that no answer carries a directive on into the next prompt."""
    return re.sub(r" {2,}", " ", DIRECTIVE.sub("", text)).strip()


def refusal(fault: Fault) -> tuple[int, dict[str, Any]]:
    """The status and the error of a fault that accepts nothing."""
    if fault.name in REFUSALS:
        status, kind, code, message = REFUSALS[fault.name]
    else:
        status = int(fault.name)
        kind = code = "server_error" if status >= 500 else "invalid_request_error"
        message = "The server had an error while processing your request." if status >= 500 else "Invalid request."
    return status, {"message": f"{message} (on request, demo)", "type": kind, "code": code, "param": None}
