"""One outside effect, from what its key's row knows to its answer: never sent twice under two keys, never blindly.

Read `Effecting.value`: as for an ask, each pass looks at the newest row and either takes its answer, or makes the next
move. Key, fingerprint and arguments are committed before the function is called; every repeat has the same key and the
same bytes.
"""

import inspect
from collections.abc import Callable
from typing import Any

from django.utils import timezone

from agentruns import crash, encoding, trust
from agentruns.approving import Approving
from agentruns.entry import Entry, checkpoint_row
from agentruns.errors import MisusedContext, Parked, PermanentError, RetryLater
from agentruns.models import Grant, IdempotencyKey, Wait, effect

LookUp = Callable[..., Any]


class FromFunction(Exception):
    """Carries what the author's function raised past our own guard of the database, to be raised as it was."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__(str(error))


class Effecting:
    """The effect at `path` of the function whose key is `key`."""

    def __init__(
        self, entry: Entry, path: str, key: str, fn: Callable[..., Any], args: tuple[Any, ...],
        on_unknown: str | LookUp, key_life: float, labels: set[str],
    ) -> None:  # fmt: skip
        self.entry, self.path, self.key, self.fn = entry, path, key, fn
        self.on_unknown, self.key_life, self.labels = on_unknown, key_life, labels
        self.arguments = encoding.loads(encoding.dumps(list(args)))
        self.fingerprint = encoding.fingerprint(self.arguments)
        self.began = timezone.now()
        if not takes_key(fn) and on_unknown == "repeat":
            raise MisusedContext(
                f"{fn_name(fn)} takes no `key`, so it cannot be repeated safely. Give it a parameter `key`, or say "
                'on_unknown="ask" or on_unknown=<a function that looks the effect up>.'
            )
        if not (on_unknown in ("repeat", "ask") or callable(on_unknown)):
            raise MisusedContext(f'on_unknown={on_unknown!r}: say "repeat", "ask", or give a function.')

    def value(self) -> Any:
        """The effect's answer. Leaves by a Parked when a person or a look-up has to say what became of it."""
        if (step := self.entry.replayed(self.path, "effect")) is not None:
            self.entry.compare(self.path, self.entry.steps.asked(self.path), self.fingerprint)
            return self.entry.value_of(step)
        while True:
            row = effect.latest(self.entry.run, self.path)
            if row is None:
                self.begin(1)
            elif row.state == "done":
                return self.take(row)
            elif row.state == "failed":
                self.go_on_from_failure(row)
            else:
                self.go_on_from_unknown(row)

    def take(self, row: IdempotencyKey) -> Any:
        """Its Step goes into the next checkpoint; the row holds the answer until then, and for ever."""
        self.entry.compare(self.path, row.fingerprint, self.fingerprint)
        step = checkpoint_row(self.entry, self.path, "effect", row.answer, self.labels, self.began)
        self.entry.learn(step)
        return row.answer

    # --- what an earlier entry left -----------------------------------------------------------------------------------

    def go_on_from_failure(self, row: IdempotencyKey) -> None:
        """It is known not to have happened. Only a person's retry opens the next generation of the key."""
        if row.round != self.entry.run.round:
            self.begin(effect.generations(self.entry.run, self.path) + 1)
        elif (said := row.answer or {}).get("permanent"):
            raise PermanentError(said.get("error", "it failed for good"))
        elif row.fingerprint != self.fingerprint:
            raise PermanentError(
                f"The code brings other arguments under the key {row.key}, whose last use failed. Retry the run to "
                "send these under a key of their own."
            )
        else:
            self.send_again(row)

    def go_on_from_unknown(self, row: IdempotencyKey) -> None:
        """It was begun, and nobody knows whether it happened."""
        if row.state == "intent":
            effect.learn(row, "unknown")
            self.entry.run.note("effect_unknown", path=self.path, key=row.key)
        if row.fingerprint != self.fingerprint:
            self.ask_a_person(f"The code brings other arguments under the key {row.key}, which may have been used.")
        if (row.answer or {}).get("again"):
            self.send_again(row)
        elif callable(self.on_unknown):
            self.look_up(row, self.on_unknown)
        elif self.on_unknown == "ask":
            self.ask_a_person(f"Whether {self.path} happened is unknown. Settle it: done, not done, or again.")
        elif effect.is_younger_than(row, self.key_life):
            self.send_again(row)
        else:
            self.ask_a_person(
                f"The key {row.key} is older than {self.key_life:g} s; a repeat could be a second effect."
            )

    def look_up(self, row: IdempotencyKey, look: LookUp) -> None:
        """`look(*args, key=…)` returns the answer of what happened, or None: it did not."""
        self.entry.boundary()
        try:
            with self.entry.theirs():
                found = called(look, row)
        except Exception as failure:
            raise FromFunction(failure) from failure
        if found is None:
            self.send_again(row)
        else:
            effect.learn(row, "done", encoding.loads(encoding.dumps(found)))

    def ask_a_person(self, reason: str) -> None:
        wait = Wait(path=self.path, kind="effect", payload={"reason": reason, "arguments": self.arguments})
        self.entry.close(Parked(wait, reason=reason))

    # --- sending it ---------------------------------------------------------------------------------------------------

    def begin(self, generation: int) -> None:
        """Under a new key, and so with a grant of its own where one is needed."""
        grant = self.granted()
        self.entry.boundary()
        key = self.key + (f"~{generation}" if generation > 1 else "")
        if row := effect.intend(self.entry.run, self.path, key, self.arguments, grant):
            self.call(row)

    def granted(self) -> Grant | None:
        """A person's yes to these very arguments, where one is needed; leaves by a Parked, or Rejected, without it.

        What came from outside may not act outside by itself; nor may a fork do again what its origin did.
        """
        if trust.EXTERNAL not in self.labels and not effect.was_begun_before_fork(self.entry.run, self.path):
            return None
        labels = trust.written(self.labels)
        return Approving(self.entry, self.path, fn_name(self.fn), self.arguments, labels).grant()

    def send_again(self, row: IdempotencyKey) -> None:
        self.entry.boundary()
        effect.intend_again(self.entry.run, row)
        self.call(row)

    def call(self, row: IdempotencyKey) -> None:
        """Calls the function with the row's key and bytes; only what it raises as such says that it did not happen."""
        crash.point("intent-committed")
        self.entry.authority.living()  # the commit may have taken longer than the lease
        try:
            with self.entry.theirs():
                answer = called(self.fn, row)
        except (PermanentError, RetryLater) as failure:
            permanent = isinstance(failure, PermanentError)
            effect.learn(row, "failed", {"error": str(failure), "permanent": permanent})
            raise FromFunction(failure) from failure
        except Exception as failure:
            effect.learn(row, "unknown")
            raise FromFunction(failure) from failure
        crash.point("effect-done")
        effect.learn(row, "done", encoding.loads(encoding.dumps(answer)))


def called(fn: Callable[..., Any], row: IdempotencyKey) -> Any:
    """`fn` with the row's bytes, and its key where there is a parameter for it."""
    arguments = row.arguments or []
    return fn(*arguments, key=row.key) if takes_key(fn) else fn(*arguments)


def takes_key(fn: Callable[..., Any]) -> bool:
    parameters = inspect.signature(fn).parameters.values()
    return any(one.name == "key" or one.kind is one.VAR_KEYWORD for one in parameters)


def fn_name(fn: Any) -> str:
    """The dotted name of a function, as a grant names it."""
    return f"{getattr(fn, '__module__', '?')}.{getattr(fn, '__qualname__', repr(fn))}"
