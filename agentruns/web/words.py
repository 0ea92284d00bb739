"""How numbers, times and statuses read on the pages. Every page words them alike."""

import re
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from django.utils import timezone

from agentruns.models import Run, Status
from agentruns.models.step_lines import WAITS_FOR, StepLine

# What a person has to act on before the run goes on; everything else ends by itself.
NEEDS_A_PERSON = ("operator", "approval", "effect", "budget", "price", "provider")


class Pill(NamedTuple):
    """A status as the pages show it: never by colour alone."""

    word: str
    tone: str
    icon: str


PILLS = {
    Status.QUEUED: Pill("Queued", "idle", "clock"),
    Status.RUNNING: Pill("Running", "run", "play"),
    Status.WAITING: Pill("Waiting", "idle", "clock"),
    Status.COMPLETED: Pill("Completed", "ok", "ok"),
    Status.FAILED: Pill("Failed", "bad", "x"),
    Status.CANCELLED: Pill("Cancelled", "idle", "x"),
}
STEP_PILLS = {
    "to_come": Pill("To come", "idle", "clock"),
    "running": Pill("Running", "run", "play"),
    "waiting": Pill("Waiting", "idle", "clock"),
    "finished": Pill("Done", "ok", "ok"),
    "failed": Pill("Failed", "bad", "x"),
    "cancelled": Pill("Cancelled", "idle", "x"),
}


def pill(run: Run) -> Pill:
    """The status of `run`; a waiting run says what for, and whether it needs a person."""
    if run.cancel_requested_at and not run.is_ended:
        return Pill("Stopping", "wait", "x")
    if run.paused_at and not run.is_ended:
        return Pill("Paused" if run.status == Status.WAITING else "Pausing", "wait", "hand")
    if run.status != Status.WAITING:
        return PILLS[Status(run.status)]
    if run.waiting_for in NEEDS_A_PERSON:
        return Pill(f"Needs you: {run.waiting_for}", "wait", "hand")
    if run.waiting_for == "model":
        return Pill("Waiting: model", "run", "chip")
    return Pill(f"Waiting: {run.waiting_for}" if run.waiting_for else "Waiting", "idle", "clock")


def step_pill(line: StepLine) -> Pill:
    """The status of one step; a waiting one says whether the model or a person is to act."""
    if line.status != "waiting":
        return STEP_PILLS[line.status]
    if line.waiting == WAITS_FOR["model"]:
        return Pill("At the model", "run", "chip")
    needs_a_person = line.waiting in {WAITS_FOR[kind] for kind in NEEDS_A_PERSON}
    return Pill("Needs you", "wait", "hand") if needs_a_person else STEP_PILLS["waiting"]


def usd(amount: Decimal | None) -> str:
    """$4.81; below a dollar up to four digits, because a call may cost $0.0013 and figures have to add up."""
    if amount is None:
        return ""
    if amount >= 1:
        return f"${amount:,.2f}"
    if 0 < amount < Decimal("0.00005"):
        return "under $0.0001"
    digits = f"{amount:.4f}"
    return "$" + (digits[:-2] if digits.endswith("00") else digits.removesuffix("0"))


def tokens(count: int) -> str:
    """697k, 4.1k, 812."""
    if count < 1000:
        return str(count)
    if count < 10_000:
        return f"{count / 1000:.1f}k".replace(".0k", "k")
    return f"{count / 1000:,.0f}k" if count < 1_000_000 else f"{count / 1_000_000:.1f}M"


def duration(seconds: float) -> str:
    """0.8s, 54s, 5m 42s, 1h 05m, 2d 4h."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f}s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    if whole < 86_400:
        return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
    return f"{whole // 86_400}d {whole % 86_400 // 3600}h"


def between(start: datetime, end: datetime | None = None) -> str:
    return duration(((end or timezone.now()) - start).total_seconds())


def plural(count: int, noun: str) -> str:
    """1 step, 2 steps."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


# Characters that change how the text around them reads, or that nobody sees (GUARANTEES.md, S14): bidi controls,
# zero-width ones, the tag block, variation selectors, and control characters other than tab and line ends.
UNSEEN = re.compile(
    "[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufe00-\ufe0f\ufeff\ud800-\udfff\U000e0000-\U000e01ef]"
)


def visible(text: object) -> str:
    """`text` with every character that hides or reorders others written out, as in ⟨U+202E⟩."""
    return UNSEEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", str(text))


def full_stop(text: str) -> str:
    """`text` as a sentence that another may follow."""
    return text if not text or text[-1] in ".!?:…" else f"{text}."


def last_line(text: object) -> str:
    """What an error says in the end: the last line that says something."""
    lines = [line.strip() for line in str(text).splitlines() if line.strip()]
    return visible(lines[-1]) if lines else ""
