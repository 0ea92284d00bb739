"""What a person has to say before a step goes on: found if it was said, waited for if not.

A grant is bound to run, path, what it is about and the hash of the exact payload; a changed payload needs another.
"""

from typing import Any

from agentruns import encoding
from agentruns.entry import Entry
from agentruns.errors import MisusedContext, Parked, Rejected
from agentruns.models import Grant, Wait
from agentruns.models.granting import GRANT_SECONDS
from agentruns.models.moment import now


class Approving:
    """Of `payload` (JSON) at `path`. `effect`: the dotted name of a function, "approval", or "question"."""

    def __init__(self, entry: Entry, path: str, effect: str, payload: Any, labels: list[str]) -> None:
        self.entry, self.path, self.effect, self.labels = entry, path, effect, labels
        self.payload = encoding.loads(encoding.dumps(payload, exact=True))
        self.sha256 = encoding.fingerprint(self.payload)

    def grant(self) -> Grant:
        """The yes that has not been used. Leaves by a Parked while nobody has said anything; raises Rejected."""
        said = Grant.objects.filter(
            run=self.entry.run, path=self.path, effect=self.effect, arguments_sha256=self.sha256
        ).select_related("by")
        if yes := said.filter(given=True, consumed_at=None, until__gt=now()).order_by("-pk").first():
            return yes
        if no := said.filter(given=False, round=self.entry.run.round).order_by("-pk").first():
            raise Rejected(no.reason)
        if self.is_overdue():
            self.expire()
        self.wait()
        raise AssertionError("a wait leaves by its Parked")

    def refuse_another_payload(self) -> None:
        """What was approved in an earlier entry was not this, if the code would ask for something else by now."""
        if self.entry.steps.asked(self.path) not in (None, self.sha256):
            raise MisusedContext(
                f"{self.path!r} was approved in this run with another payload than the code has by now. Fork the run "
                "from there, or give the new approval a name of its own."
            )

    def is_overdue(self) -> bool:
        """Whether the last wait for this very payload ran out, and nothing has been said since it was opened.

        The clock may have closed it when its time came.
        """
        wait = self.entry.wait_at(self.path)
        if wait is None or wait.payload_sha256 != self.sha256:
            return False
        ran_out = Wait.objects.filter(pk=wait.pk, until__lte=now()).exists()
        said = Grant.objects.filter(run=self.entry.run, path=self.path, at__gte=wait.opened_at)
        return ran_out and not said.exists()

    def expire(self) -> None:
        """Nobody answered in time, which is a no; remembered, so that every re-entry meets the same."""
        reason = "Nobody answered in time."
        run = self.entry.run
        Grant.objects.create(
            run=run, path=self.path, effect=self.effect, arguments_sha256=self.sha256, given=False, reason=reason,
            at=now(), until=now(), round=run.round,
        )  # fmt: skip
        raise Rejected(reason)

    def wait(self) -> None:
        is_question = self.effect == "question"
        what = {"question": "a question", "approval": "an approval"}.get(self.effect, f"a yes to {self.effect}")
        reason = f"{self.path} waits for {what}."
        wait = Wait(
            path=self.path, kind="operator" if is_question else "approval", payload_sha256=self.sha256,
            payload={"effect": self.effect, "arguments": self.payload, "labels": self.labels, "reason": reason},
        )  # fmt: skip
        if not is_question:
            wait.seconds = GRANT_SECONDS  # type: ignore[attr-defined]
        self.entry.close(Parked(wait, reason=reason))
