"""The clock's postman: takes notifications from the outbox to where they are read.

claim by one conditional write → send → mark as sent. A process that dies between the last two sends it a second time,
under the same Message-ID or webhook-id, by which the other side knows it. Links only: a mail never approves anything.
"""

import json
import logging
from datetime import timedelta
from typing import Any, Protocol

import httpx
from django.conf import settings
from django.core.mail import EmailMessage
from django.db.models import F
from django.utils import timezone

from agentruns import crash
from agentruns.models import Hook, Outbox
from agentruns.models.moment import in_seconds, now
from agentruns.models.outbox import BUDGET, COMPLETED, FAILED, MAIL, NEEDS_YOU, WEBHOOK
from agentruns.signing import signature

log = logging.getLogger(__name__)

SENT_AT_ONCE = 20
ANSWER_SECONDS = 10.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 5.0, 3600.0
PATIENCE = timedelta(days=3)
SUBJECTS = {
    NEEDS_YOU: "needs you",
    FAILED: "failed",
    COMPLETED: "is completed",
    BUDGET: "has spent 80 % of its budget",
}


class NotSent(Exception):
    """It did not arrive, or nobody said that it did. `for_good`: another try would not help."""

    def __init__(self, message: str, *, for_good: bool = False) -> None:
        self.for_good = for_good
        super().__init__(message)


class Channel(Protocol):
    def __call__(self, row: Outbox) -> None:
        """Sends it; raises NotSent."""


def send_due() -> None:
    """One try of each notification that is due."""
    for row in Outbox.objects.filter(send_at__lte=now()).select_related("run").order_by("send_at")[:SENT_AT_ONCE]:
        send(row)


def send(row: Outbox) -> bool:
    """False: another clock was first, or it did not arrive."""
    mine = Outbox.objects.filter(pk=row.pk, tries=row.tries, sent_at=None)
    if not mine.update(tries=F("tries") + 1, send_at=in_seconds(pause_after(row.tries))):
        return False
    mine = Outbox.objects.filter(pk=row.pk, sent_at=None)
    try:
        CHANNELS[row.channel](row)
    except NotSent as error:
        fail(row, error)
        return False
    crash.point("notified")
    mine.update(sent_at=now(), send_at=None, error="")
    return True


def fail(row: Outbox, error: NotSent) -> None:
    log.warning("Run %s: nobody was told that it %s (%s).", row.run_id, SUBJECTS.get(row.kind, row.kind), error)
    tried = Outbox.objects.filter(pk=row.pk, sent_at=None)
    if not error.for_good and timezone.now() - row.created_at < PATIENCE:
        tried.update(error=str(error)[:500])
    elif tried.filter(send_at__isnull=False).update(error=str(error)[:500], send_at=None):
        row.run.note("not_told", what=row.kind, channel=row.channel, reason=str(error)[:300])


def pause_after(tries: int) -> float:
    """Seconds until the next try; at least as long as one may take."""
    return float(min(FIRST_PAUSE_SECONDS * 2 ** min(tries, 16), LONGEST_PAUSE_SECONDS)) + ANSWER_SECONDS


# --- mail ------------------------------------------------------------------------------------------------------------


def by_mail(row: Outbox) -> None:
    run = row.run
    if not settings.EMAIL_URL:
        raise NotSent("mail: EMAIL_URL is not set any more")
    message = EmailMessage(
        subject=f"agentruns: {run.plan} {SUBJECTS[row.kind]} ({run.short_id})",
        body=words_of(row),
        from_email=settings.AGENT_MAIL_FROM,
        to=[row.target],
        headers={"Message-ID": f"<{row.pk.hex}@agentruns>", "Auto-Submitted": "auto-generated"},
    )
    try:
        message.send(using="default")
    except (OSError, ValueError) as error:  # smtplib's are OSErrors
        raise NotSent(f"mail: {type(error).__name__}: {error}") from error


def words_of(row: Outbox) -> str:
    """Plain text: what happened, what is at stake, and where to look."""
    run, about = row.run, row.about if isinstance(row.about, dict) else {}
    lines = [f"{run.title}", "", f"The run {SUBJECTS[row.kind]}."]
    if path := about.get("path"):
        lines.append(f"Step: {path}")
    if reason := about.get("reason"):
        lines.append(f"{reason}")
    lines += [f"Spent so far: ${float(about.get('spent_usd', 0)):.4f} of ${about.get('budget_usd', '?')}", ""]
    return "\n".join([*lines, address_of(run)])


def address_of(run: Any) -> str:
    return f"{settings.AGENT_URL}{run.get_absolute_url()}"


# --- webhook ---------------------------------------------------------------------------------------------------------


def by_webhook(row: Outbox) -> None:
    """A POST, signed as Standard Webhooks are; no redirect is followed, and 2xx alone counts as an answer."""
    hook = Hook.objects.filter(pk=int(row.target), is_active=True).first()
    if hook is None:
        raise NotSent("webhook: its address was taken away or switched off", for_good=True)
    body, sent_at = payload_of(row), int(timezone.now().timestamp())
    event_id = f"msg_{row.pk.hex}"
    headers = {
        "content-type": "application/json", "user-agent": "agentruns", "webhook-id": event_id,
        "webhook-timestamp": str(sent_at), "webhook-signature": signature(hook.secret, event_id, sent_at, body),
    }  # fmt: skip
    try:
        with httpx.Client(timeout=ANSWER_SECONDS, trust_env=False) as client:
            answer = client.post(hook.url, content=body, headers=headers)
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise NotSent(f"webhook: {type(error).__name__}: {error}") from error
    if answer.status_code == 410:
        raise NotSent("webhook: the address says that it is gone (410)", for_good=True)
    if not answer.is_success:
        raise NotSent(f"webhook: the address answered {answer.status_code}")


def payload_of(row: Outbox) -> bytes:
    """What happened to which run, in dollars, and where to look; nothing that the run has read or written."""
    run = row.run
    data = {"id": str(run.pk), "plan": run.plan, "title": run.title, "url": address_of(run), **row.about}
    event = {"type": f"run.{row.kind}", "timestamp": row.created_at.isoformat(), "data": data}
    return json.dumps(event).encode()


CHANNELS: dict[str, Channel] = {MAIL: by_mail, WEBHOOK: by_webhook}
