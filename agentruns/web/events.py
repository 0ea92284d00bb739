"""Events in sentences for people: the one place that words them. Parts come from `Event.about`."""

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from agentruns.models import Event
from agentruns.models.step_lines import WAITS_FOR, title_of
from agentruns.web.words import duration, last_line, plural, usd, visible

CAUSES = {
    "crash": "its worker died",
    "lease": "its worker was lost",
    "deploy": "a deploy stopped its worker",
    "drain": "its worker was asked to stop",
    "timeout": "the step ran into its time limit",
    "cancel": "it was cancelled",
    "slice": "its worker's slice was over",
    "pause": "it was paused",
    "database": "the database did not answer",
}

SETTLED_AS = {
    "done": "it happened",
    "not-done": "it did not happen",
    "again": "nobody knows; it is sent once more under the same key",
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
    seconds = about.get("seconds")
    took = f", {duration(float(seconds))} after it was asked for" if isinstance(seconds, int | float) else ""
    return Sentence(
        "x", "idle", "Cancelled", f"{_by(event)}{took}{forced}. {_after_cancel(about)}Finished steps are kept."
    )


def _after_cancel(about: dict[str, Any]) -> str:
    after, flying = _amount(about.get("paid_after")), _amount(about.get("in_flight"))
    spent = f"{usd(after)} was spent after that. " if after is not None else ""
    return spent + (f"Calls worth up to {usd(flying)} are being cancelled at the provider. " if flying else "")


def _call_settled(event: Event, about: dict[str, Any]) -> Sentence:
    how = visible(about.get("state") or "settled")
    return Sentence(
        "coin", "idle", _step(event), f": a call in flight ended ({how}) and cost {_usd(about.get('usd'))}."
    )


def _paused(event: Event, about: dict[str, Any]) -> Sentence:
    return Sentence("hand", "wait", "Paused", f"{_by(event)}. Nothing new begins until it is resumed.")


def _unpaused(event: Event, about: dict[str, Any]) -> Sentence:
    return Sentence("play", "run", "Goes on", f"{_by(event)}: the pause is over.")


def _effect_unknown(event: Event, about: dict[str, Any]) -> Sentence:
    key = f" (key {visible(about['key'])})" if about.get("key") else ""
    return Sentence("bell", "bad", _step(event), f": whether this effect happened is not known{key}.")


def _settled(event: Event, about: dict[str, Any]) -> Sentence:
    word = SETTLED_AS.get(str(about.get("word")), visible(about.get("word") or "settled"))
    return Sentence("hand", "run", _step(event), f" was settled{_by(event)}: {word}.")


def _approved(event: Event, about: dict[str, Any]) -> Sentence:
    return Sentence("ok", "ok", _step(event), f" was approved{_by(event)}.")


def _rejected(event: Event, about: dict[str, Any]) -> Sentence:
    return Sentence(
        "x", "bad", _step(event), f" was rejected{_by(event)}: {visible(about.get('reason') or 'no reason')}"
    )


def _answered(event: Event, about: dict[str, Any]) -> Sentence:
    return Sentence("hand", "run", _step(event), f" was answered{_by(event)}.")


def _forked(event: Event, about: dict[str, Any]) -> Sentence:
    kept = plural(int(about.get("kept") or 0), "finished step")
    return Sentence("fork", "run", "Forked", f"{_by(event)} from {_step(event)} of another run; {kept} inherited.")


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


def _call_adopted(event: Event, about: dict[str, Any]) -> Sentence:
    return Sentence("ok", "ok", _step(event), ": the provider told of a call that was taken for lost; it counts.")


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
    "call_adopted": _call_adopted,
    "call_failed": _call_failed,
    "diverged": _diverged,
    "released": _released,
    "lease_lost": _lease_lost,
    "call_settled": _call_settled,
    "paused": _paused,
    "unpaused": _unpaused,
    "effect_unknown": _effect_unknown,
    "settled": _settled,
    "forked": _forked,
    "approved": _approved,
    "rejected": _rejected,
    "answered": _answered,
}


def _step(event: Event) -> str:
    return visible(title_of(event.path)) if event.path else "The run"


def _at(event: Event) -> str:
    return f"at {_step(event)}. " if event.path else ""


def _by(event: Event) -> str:
    return f" by {event.by.get_username()}" if event.by else ""


def _usd(text: Any) -> str:
    amount = _amount(text)
    return "an unknown amount" if amount is None else usd(amount)


def _amount(text: Any) -> Decimal | None:
    try:
        return Decimal(str(text))
    except InvalidOperation:
        return None
