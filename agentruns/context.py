"""What a step is handed. Everything durable that a step does goes through its ctx, under a name."""

import copy
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from django.utils import timezone

from agentruns import trust
from agentruns.approving import Approving
from agentruns.asking import Asking
from agentruns.effecting import Effecting, FromFunction
from agentruns.entry import Entry, checkpoint_row
from agentruns.errors import MisusedContext, Parked, PlanError
from agentruns.mapping import Mapping
from agentruns.models import Grant, Wait
from agentruns.models.moment import now
from agentruns.outcome import wait_for
from agentruns.plan import PATH_LENGTH, StepFunction, name_of
from agentruns.prior import Prior
from agentruns.question import Answer, Question
from agentruns.sending import book_outside

LONGEST_SLEEP_SECONDS = 10 * 366 * 86_400


# Providers keep keys for 24 h; an hour less, so that none is repeated when it may have been forgotten.
EFFECT_KEY_SECONDS = 23 * 3600


class Context:
    """One function's hands: `task`, `params`, `prior`, `key`, `ask`, `step`, `map`, `effect`, `sleep`, `approve`,
    `question`, `external`, `usage`.

    A function may run again from its top after an interruption or a wake: what it did through here is replayed from
    rows, what it did outside is done again.
    """

    def __init__(self, entry: Entry, path: str, retries: int, labels: set[str] | None = None) -> None:
        self._entry, self._path, self._retries = entry, path, retries
        self._labels: set[str] = set(labels or ())
        self._names: set[str] = set()
        self._effect: str | None = None
        self.prior = Prior(entry, self._hand_out)

    @property
    def run_id(self) -> str:
        self._entry.check()
        return str(self._entry.run.pk)

    @property
    def task(self) -> str:
        self._entry.check()
        self._hand_out({trust.USER})
        return str(self._entry.run.task)

    @property
    def params(self) -> dict[str, Any]:
        self._entry.check()
        self._hand_out({trust.USER})
        return copy.deepcopy(self._entry.run.params)  # what one step changes in it, no other step sees

    @property
    def key(self) -> str:
        """The idempotency key of the present function: the same on every attempt, in every process."""
        return f"{self.run_id}:{self._path}"

    def ask(
        self,
        prompt: str | list[Any],
        *,
        name: str = "ask",
        model: str | None = None,
        instructions: str | None = None,
        max_output_tokens: int | None = None,
        tools: list[Any] | None = None,
        schema: Any = None,
        check: Callable[[Any], object] | None = None,
    ) -> Answer:
        """One model call, a durable sub-step: a `str` with `.usage`, `.cost` (USD), `.model`, `.data`, `.tool_calls`.

        `schema`: a JSON schema or a pydantic model that the answer must fit; `check(answer)` raises to refuse it.
        Either asks again, up to the step's `retries`. Raises Incomplete, Refused, BadAnswer, ModelError.
        """
        path = self._sub(name)
        question = Question(
            prompt, model or self._entry.run.model, instructions, max_output_tokens, tools, schema, check
        )
        with self._entry.ours():
            answer, labels = Asking(self._entry, path, question, self._retries, self._labels).answer()
        self._hand_out(labels)
        return answer

    def step(self, name: str, fn: Callable[..., Any], *args: Any) -> Any:
        """A durable sub-step, finished once: `fn(ctx, *args)` if it was marked with @step, else `fn(*args)`."""
        path = self._sub(name)
        with self._entry.ours():
            if (row := self._entry.replayed(path, "part")) is not None:
                self._hand_out(trust.read(row.labels))
                return self._entry.value_of(row)
        self._entry.boundary()
        began = timezone.now()
        labels = self._labels
        if isinstance(fn, StepFunction):
            if fn.atomic:
                raise MisusedContext(f"{fn.name!r} is atomic, and so must be a step of the plan, not a sub-step.")
            inner = Context(self._entry, path, fn.retries, self._labels)
            value = fn(inner, *args)
            labels = inner._labels
        else:
            value = fn(*args)
        self._finish(path, "part", value, labels, began)
        return value

    def map(
        self, name: str, fn: Callable[..., Any], items: Iterable[Any], *, key: Callable[[Any], Any] | None = None
    ) -> list[Any]:
        """One durable sub-step an item (JSON), in parallel; results in the order of the items.

        `fn(ctx, item)` if it was marked with @step, else `fn(item)`. An item is named by its own text, or by
        `key(item)`; equal items are one. Raises ItemFailed for the first that failed, when nothing is open any more.
        """
        path = self._sub(name)

        def call(branch: Entry, item_path: str, item: Any) -> tuple[Any, set[str]]:
            inner = Context(branch, item_path, fn.retries if isinstance(fn, StepFunction) else 0, self._labels)
            value = fn(inner, item) if isinstance(fn, StepFunction) else fn(item)
            return value, inner._labels

        values, labels = Mapping(self._entry, path, list(items), key, call).results()
        self._hand_out(labels)
        return values

    def effect(
        self,
        name: str,
        fn: Callable[..., Any],
        *args: Any,
        on_unknown: str | Callable[..., Any] = "repeat",
        key_life: float = EFFECT_KEY_SECONDS,
    ) -> Any:
        """One outside effect, at most one in a function: `fn(*args, key=ctx.key)`, once its intent is committed.

        PermanentError or RetryLater from `fn` says that it did not happen; anything else leaves it unknown. Then
        `on_unknown`: "repeat" (same key, same bytes, while the key is younger than `key_life` seconds), "ask" (a person
        settles it), or a function that looks it up and returns its answer, or None. Returns what `fn` returned (JSON).
        """
        path = self._sub(name)
        if self._effect is not None:
            raise MisusedContext(
                f"Step {self._path!r} has the effects {self._effect!r} and {name!r} under one key. Put the second in a "
                "sub-step of its own: ctx.step(…)."
            )
        self._effect = name
        labels = set(self._labels)
        try:
            with self._entry.ours():
                return Effecting(self._entry, path, self.key, fn, args, on_unknown, key_life, labels).value()
        except FromFunction as raised:
            raise raised.error from None

    def sleep(self, name: str, seconds: float) -> None:
        """Parks the run until `seconds` have passed since the first time it came here; holds no process meanwhile."""
        path = self._sub(name)
        if not (isinstance(seconds, int | float) and 0 <= seconds <= LONGEST_SLEEP_SECONDS):
            raise MisusedContext(f"sleep({name!r}, {seconds!r}): give seconds, from 0 to {LONGEST_SLEEP_SECONDS:,}.")
        with self._entry.ours():
            if self._entry.replayed(path, "sleep") is not None:
                return
            wait = self._entry.wait_at(path)
            if wait is None:
                wait = wait_for(path, "timer", seconds=float(seconds))
            elif wait.closed_at is not None or Wait.objects.filter(pk=wait.pk, until__lte=now()).exists():
                self._finish(path, "sleep", None, set(), wait.opened_at)
                Wait.objects.filter(pk=wait.pk, closed_at=None).update(closed_at=now())
                return
            self._entry.close(Parked(wait))

    def approve(self, name: str, payload: Any) -> dict[str, str]:
        """Parks until a person says yes to exactly `payload` (JSON); returns {"by": account, "at": ISO time}.

        A no, or 24 h without a word, raises Rejected. A payload that changed meanwhile is asked for anew.
        """
        path = self._sub(name)
        with self._entry.ours():
            approving = Approving(self._entry, path, "approval", payload, trust.written(self._labels))
            if (row := self._entry.replayed(path, "approval")) is not None:
                approving.refuse_another_payload()
                return dict(self._entry.value_of(row))
            grant = approving.grant()
            said = {"by": grant.by.get_username() if grant.by else "", "at": grant.at.isoformat()}
            self._finish(path, "approval", said, {trust.TRUSTED}, timezone.now(), grant)
        return said

    def question(self, name: str, prompt: str) -> str:
        """Parks until a person answers `prompt` in words, and returns them; their label is `user`."""
        path = self._sub(name)
        with self._entry.ours():
            approving = Approving(self._entry, path, "question", prompt, trust.written(self._labels))
            if (row := self._entry.replayed(path, "question")) is not None:
                self._entry.compare(path, self._entry.steps.asked(path), approving.sha256)
                answer = str(self._entry.value_of(row))
            else:
                grant = approving.grant()
                answer = str(grant.reason)
                self._finish(path, "question", answer, {trust.USER}, timezone.now(), grant)
        self._hand_out({trust.USER})
        return answer

    def external(self, value: Any, source: str) -> Any:
        """Hands out a value that came from outside (`source`: where, for people); what follows carries the label."""
        self._entry.check()
        self._hand_out({trust.EXTERNAL})
        return value

    def usage(self, name: str, model: str, *, input_tokens: int = 0, output_tokens: int = 0) -> None:
        """Books what was paid outside `ask`, at once, once an attempt. It may pass the budget: it is already spent."""
        path = self._sub(name)
        with self._entry.ours():
            book_outside(self._entry, path, model, input_tokens, output_tokens)

    def _sub(self, name: str) -> str:
        """The path of a sub-step called `name`, new in this entry of the function."""
        self._entry.check()
        try:
            path = f"{self._path}/{name_of(name)}"
        except PlanError as error:
            raise MisusedContext(str(error)) from None
        if len(path) > PATH_LENGTH:
            raise MisusedContext(f"The path {path[:60]}… has {len(path)} characters; {PATH_LENGTH} is the limit.")
        if name in self._names:
            raise MisusedContext(
                f"Step {self._path!r} uses the name {name!r} twice; give each its own, as in ask(…, name='second')."
            )
        self._names.add(name)
        return path

    def _finish(
        self, path: str, kind: str, value: Any, labels: set[str], began: datetime, grant: Grant | None = None
    ) -> None:
        row = checkpoint_row(self._entry, path, kind, value, labels, began)
        with self._entry.ours():
            self._entry.checkpoint_part(row, grant)
        self._hand_out(labels)

    def _hand_out(self, labels: set[str]) -> None:
        self._labels |= labels
