"""Events in sentences for people: the one place that words them. Parts come from `Event.about`."""

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from agentruns.models import Event
from agentruns.models.step_lines import WAITS_FOR, title_of
from agentruns.web.words import last_line, plural, usd, visible

CAUSES = {
    "crash": "its worker died",
    "lease": "its worker was lost",
    "deploy": "a deploy stopped its worker",
    "drain": "its worker was asked to stop",
    "timeout": "the step ran into its time limit",
    "cancel": "it was cancelled",
    "slice": "its worker's slice was over",
}


class Sentence(NamedTuple):
    """`lead` is set bold, `rest` follows it; `tone` and `icon` as on status pills."""

    icon: str
    tone: str
    lead: str
    rest: str = ""


def sentence(event: Event) -> Sentence:
    """What `event` says to a person. A kind that this build does not know is shown by its name, never dropped."""
    about: dict[str, Any] = event.about if isinstance(event.about, dict) else {}
    if worded := SENTENCES.get(event.kind):
        return worded(event, about)
    parts = ", ".join(f"{name} {visible(value)}" for name, value in about.items())
    return Sentence("clock", "idle", event.kind.replace("_", " ").capitalize(), f" {_at(event)}{parts}".rstrip())


def cause(word: str) -> str:
    """Why an attempt was cut off, as the end of a sentence."""
    return CAUSES.get(word, visible(word) or "it was interrupted")


def _started(event: Event, about: dict[str, Any]) -> Sentence:
    return Sentence("play", "run", "Started", f"{_by(event)} with a budget of {_usd(about.get('budget'))}.")


def _waiting(event: Event, about: dict[str, Any]) -> Sentence:
    what = WAITS_FOR.get(str(about.get("wait")), "its turn")
    return Sentence("hand", "wait", _step(event), f" waits for {what}. {visible(about.get('reason') or '')}")


def _retrying(event: Event, about: dict[str, Any]) -> Sentence:
    return Sentence("back", "wait", _step(event), f" failed and is tried again: {last_line(about.get('error', ''))}")


def _interrupted(event: Event, about: dict[str, Any]) -> Sentence:
    rest = f" was cut off: {cause(str(about.get('cause', '')))}"
    worker = f" ({visible(about['worker'])})" if about.get("worker") else ""
    return Sentence("bell", "bad", _step(event), f"{rest}{worker}. What was finished before is kept.")


def _resumed(event: Event, about: dict[str, Any]) -> Sentence:
    finished = int(about.get("finished") or 0)
    kept = f" {plural(finished, 'finished step')} read back, not run again." if finished else ""
    return Sentence("back", "kept", "Resumed", f" on {visible(about.get('worker') or 'another worker')}.{kept}")


def _completed(event: Event, about: dict[str, Any]) -> Sentence:
    return Sentence("ok", "ok", "Completed", ". Every step is finished.")


def _failed(event: Event, about: dict[str, Any]) -> Sentence:
    where = f" in {_step(event)}" if event.path else ""
    return Sentence("x", "bad", "Failed", f"{where}: {last_line(about.get('error', '')) or 'no reason was given'}")


def _cancelled(event: Event, about: dict[str, Any]) -> Sentence:
    forced = ", by force: its worker did not stop in time" if about.get("forced") else ""
    return Sentence("x", "idle", "Cancelled", f"{_by(event)}{forced}. Finished steps are kept.")


def _cancel_asked(event: Event, about: dict[str, Any]) -> Sentence:
    return Sentence("x", "wait", "Cancel asked", f"{_by(event)}. It stops before anything new begins.")


def _retried(event: Event, about: dict[str, Any]) -> Sentence:
    where = f" from {_step(event)}" if event.path else ""
    return Sentence("back", "run", "Retried", f"{where}{_by(event)}. Finished steps are not run or paid again.")


def _budget(event: Event, about: dict[str, Any]) -> Sentence:
    return Sentence(
        "coin", "idle", "Budget changed", f"{_by(event)}: {_usd(about.get('before'))} to {_usd(about.get('after'))}."
    )


def _call_unknown(event: Event, about: dict[str, Any]) -> Sentence:
    why = visible(about.get("reason") or "no reason")
    booked = f"it is booked at {_usd(about.get('usd'))}, as it may have been paid"
    return Sentence("bell", "bad", _step(event), f" got no answer to a call ({why}); {booked}.")


def _call_failed(event: Event, about: dict[str, Any]) -> Sentence:
    why = last_line(about.get("error") or about.get("reason") or "")
    return Sentence("bell", "bad", _step(event), f": a model call failed. {why}".rstrip())


def _diverged(event: Event, about: dict[str, Any]) -> Sentence:
    return Sentence(
        "fork", "wait", _step(event),
        " would now ask something else than it did; the answer that was paid is used. To ask anew, start another run.",
    )  # fmt: skip


def _released(event: Event, about: dict[str, Any]) -> Sentence:
    return Sentence(
        "back", "idle", "Handed back", f" by {visible(about.get('worker') or 'its worker')}, which was asked to stop."
    )


def _lease_lost(event: Event, about: dict[str, Any]) -> Sentence:
    return Sentence(
        "bell",
        "idle",
        "A late worker",
        f" ({visible(about.get('worker') or 'unnamed')}) found the run taken over and stopped.",
    )


SENTENCES: dict[str, Callable[[Event, dict[str, Any]], Sentence]] = {
    "started": _started,
    "waiting": _waiting,
    "retrying": _retrying,
    "interrupted": _interrupted,
    "resumed": _resumed,
    "completed": _completed,
    "failed": _failed,
    "cancelled": _cancelled,
    "cancel_asked": _cancel_asked,
    "retried": _retried,
    "budget": _budget,
    "call_unknown": _call_unknown,
    "call_failed": _call_failed,
    "diverged": _diverged,
    "released": _released,
    "lease_lost": _lease_lost,
}


def _step(event: Event) -> str:
    return visible(title_of(event.path)) if event.path else "The run"


def _at(event: Event) -> str:
    return f"at {_step(event)}. " if event.path else ""


def _by(event: Event) -> str:
    return f" by {event.by.get_username()}" if event.by else ""


def _usd(text: Any) -> str:
    try:
        return usd(Decimal(str(text)))
    except InvalidOperation:
        return "an unknown amount"
