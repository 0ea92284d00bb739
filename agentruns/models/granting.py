"""A person's yes, no, or words, to exactly what a run waits for; each wait is ended by one person, once."""

from typing import Any

from django.db import transaction
from django.db.models import F

from agentruns.errors import Refusal
from agentruns.models.moment import in_seconds, now
from agentruns.models.trait import Trait
from agentruns.models.wait import Grant, Wait

GRANT_SECONDS = 24 * 3600.0
PERMISSION = "agentruns.approve_run"
ANSWER_CHARACTERS = 100_000


class Granting(Trait):
    """approve, reject, answer. All raise Refusal, with the remedy, for who may not and for what nobody waits for."""

    def approve(self, path: str, by: Any, sha256: str = "") -> None:
        """A yes to exactly the payload that waits at `path`, good for 24 h and one use.

        `sha256`: of the payload that the person saw; another one waits by now: refused.
        """
        self._end_wait(path, "approval", by, "approved", given=True, sha256=sha256)

    def reject(self, path: str, by: Any, reason: str) -> None:
        """A no; the step that asked gets Rejected(reason)."""
        if not reason.strip():
            raise Refusal("Say why it is rejected; the step, and the model, are told.")
        self._end_wait(path, "approval", by, "rejected", given=False, reason=reason.strip()[:2000])

    def answer(self, path: str, text: str, by: Any) -> None:
        """A person's words to the question that waits at `path`."""
        if not text.strip() or len(text) > ANSWER_CHARACTERS:
            raise Refusal(f"The answer must have between 1 and {ANSWER_CHARACTERS:,} characters.")
        self._end_wait(path, "operator", by, "answered", given=True, reason=text)

    def _end_wait(
        self, path: str, kind: str, by: Any, event: str, *, given: bool, reason: str = "", sha256: str = ""
    ) -> None:
        if by is None or not by.has_perm(PERMISSION):
            who = "Nobody in particular" if by is None else by.get_username()
            raise Refusal(f"{who} may not do this: it needs an account with the permission {PERMISSION}.")
        with transaction.atomic():
            run: Any = self.lock()
            waits = Wait.objects.filter(run=run, path=path, kind=kind, closed_at=None).exclude(payload_sha256="")
            wait = waits.first()
            if wait is None or not waits.exclude(until__lte=now()).exists():
                raise Refusal(f"Nothing at {path[:80]!r} of run {run.short_id} waits for this; it may be over.")
            if sha256 and sha256 != wait.payload_sha256:
                raise Refusal("What waits there has changed since you looked at it. Look again.")
            Grant.objects.create(
                run=run, path=path, effect=effect_of(wait), arguments_sha256=wait.payload_sha256, given=given,
                reason=reason, by=by, at=now(), until=in_seconds(GRANT_SECONDS), round=run.round,
            )  # fmt: skip
            waits.update(closed_at=now(), closed_by=by)
            run.rows().filter(pk=run.pk).update(version=F("version") + 1)
            run.record(event, path=path, by=by, reason=reason[:300], sha256=wait.payload_sha256[:12])
            run.wake(unrung="approved")


def effect_of(wait: Wait) -> str:
    """What the wait is about, as its grants name it: a function's dotted name, "approval" or "question"."""
    return str((wait.payload or {}).get("effect", "")) if isinstance(wait.payload, dict) else ""


def is_said(wait: Wait) -> bool:
    """Whether somebody has had his say on `wait`, between the worker's look and its park."""
    if not wait.payload_sha256:
        return False
    said = Grant.objects.filter(run=wait.run_id, path=wait.path, arguments_sha256=wait.payload_sha256)
    fresh = said.filter(given=True, consumed_at=None, until__gt=now())
    return fresh.exists() or said.filter(given=False, round=wait.run.round).exists()
