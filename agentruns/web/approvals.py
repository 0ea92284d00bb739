"""`/approvals/`: whatever waits for a person's word, with exactly what it is about; and the word itself."""

import json
import time
import uuid
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.contrib.auth.signals import user_logged_in
from django.db.models import F, Q
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from agentruns import encoding
from agentruns.errors import Refusal
from agentruns.models import Run, Status, Wait
from agentruns.models.granting import PERMISSION
from agentruns.web.redirect import back
from agentruns.web.words import visible

SHOWN = 100
# A person who gave his password within this time (seconds) need not give it again.
CONFIRMED_SECONDS = 300.0
CONFIRMED = "confirmed_at"


@dataclass
class Card:
    """One wait. `kind`: approval, question or effect (of which nobody knows whether it happened)."""

    wait: Wait
    kind: str
    typed: str = ""
    """What the person had written when his word was refused."""

    @property
    def run(self) -> Run:
        return self.wait.run

    @property
    def about(self) -> dict[str, Any]:
        return self.wait.payload if isinstance(self.wait.payload, dict) else {}

    @property
    def title(self) -> str:
        effect = str(self.about.get("effect", ""))
        if self.kind == "effect":
            return f"Did {self.wait.path} happen?"
        return {"approval": "Approve?", "question": "A question"}.get(effect, f"Call {effect}?")

    @property
    def reason(self) -> str:
        return visible(self.about.get("reason", ""))

    @property
    def exact(self) -> str:
        """The payload itself, character by character; what hides or reorders others is written out."""
        payload = self.about.get("arguments")
        if isinstance(payload, str):
            return visible(payload)
        return visible(json.dumps(payload, indent=2, ensure_ascii=False, sort_keys=True))

    @property
    def labels(self) -> list[str]:
        return [str(label) for label in self.about.get("labels") or []]


@require_safe
def approvals(request: HttpRequest) -> HttpResponse:
    return page(request)


def page(request: HttpRequest, refused: uuid.UUID | None = None, path: str = "", typed: str = "") -> HttpResponse:
    """The page; with what somebody had typed, when his word was refused."""
    cards = cards_for(request)
    for card in cards:
        if card.run.pk == refused and card.wait.path == path:
            card.typed = typed
    context = {"cards": cards, "may": request.user.has_perm(PERMISSION), "confirm": not is_confirmed(request)}
    return render(request, "approvals.html", context, status=422 if refused else 200)


def cards_for(request: HttpRequest, run: Run | None = None) -> list[Card]:
    """What waits for a person and may be seen by this one: the nearest deadline first."""
    waits = open_waits(request.user).select_related("run").defer("run__task", "run__params")
    if run is not None:
        waits = waits.filter(run=run)
    first = waits.order_by(F("until").asc(nulls_last=True), "opened_at")[:SHOWN]
    return [Card(wait, {"operator": "question"}.get(wait.kind, wait.kind)) for wait in first]


def open_waits(user: Any) -> Any:
    """Approvals, questions and unknown effects of living runs that `user` may see."""
    asked = Q(kind="effect") | (Q(kind__in=("approval", "operator")) & ~Q(payload_sha256=""))
    seen = Run.objects.visible_to(user).filter(status__in=(Status.WAITING, Status.RUNNING, Status.QUEUED))
    return Wait.objects.filter(asked, closed_at=None, run__in=seen)


@require_POST
def say(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """A yes, a no, an answer, or what became of an effect. What was typed is not lost when it is refused."""
    run = get_object_or_404(Run.objects.visible_to(request.user), pk=run_id)
    said = request.POST
    try:
        confirm(request)
        messages.success(request, obey(run, said, request.user))
    except Refusal as refusal:
        messages.warning(request, str(refusal))
        return page(request, run.pk, said.get("path", ""), said.get("text", ""))
    return back(request, reverse("approvals"))


def obey(run: Run, said: Any, by: Any) -> str:
    path, text = said.get("path", ""), said.get("text", "")
    match said.get("word"):
        case "approve":
            run.approve(path, by, sha256=said.get("sha256", ""))
            return "Approved, once, for exactly this."
        case "reject":
            run.reject(path, by, text)
            return "Rejected; the step is told why."
        case "answer":
            run.answer(path, text, by)
            return "Answered."
        case "done" | "not-done" | "again" as word:
            if not by.has_perm(PERMISSION):
                raise Refusal(f"This needs the permission {PERMISSION}.")
            run.settle(path, word, answer_in(text) if word == "done" else None, by=by)
            return "Settled; the run goes on by it."
    raise Refusal("Say one of: approve, reject, answer, done, not-done, again.")


def answer_in(text: str) -> Any:
    """JSON as it was typed; nothing is null, and what is no JSON is a text."""
    if not text.strip():
        return None
    try:
        return encoding.loads(text)
    except ValueError:
        return text


# --- who is really there ----------------------------------------------------------------------------------------------


def is_confirmed(request: HttpRequest) -> bool:
    """Whether the person gave his password lately, here or at the login."""
    return time.time() - float(request.session.get(CONFIRMED, 0)) < CONFIRMED_SECONDS


def confirm(request: HttpRequest) -> None:
    """Raises Refusal without a recent password: a page that was left open must not be enough."""
    if is_confirmed(request):
        return
    user: Any = request.user
    if not user.check_password(request.POST.get("password", "")):
        raise Refusal("Give your password to confirm that it is you; it is asked for once in five minutes.")
    request.session[CONFIRMED] = time.time()


@receiver(user_logged_in)
def remember_login(sender: Any, request: Any, **_: Any) -> None:
    """Signing in is a confirmation."""
    if request is not None and hasattr(request, "session"):
        request.session[CONFIRMED] = time.time()
