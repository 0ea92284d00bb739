"""The mutants. Each replaces one text in one file, and names the words after `python -m` that must then end with 1."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """`guarantee`: G1 … of GUARANTEES.md. `what`: the guard that is gone."""

    guarantee: str
    what: str
    path: str
    old: str
    new: str
    red: tuple[str, ...]


def trials(fault: str, number: int, only: int | None = None) -> tuple[str, ...]:
    words = ("tests.trials", "--database", "sqlite", "--faults", fault, "--trials", str(number))
    return words if only is None else (*words, "--only", str(only))


def tests(path: str, name: str) -> tuple[str, ...]:
    return ("pytest", "-q", "-x", f"tests/{path}", "-k", name)


CHORES = "Run.wake_priced, rescue_expired, end_unruly, lose_orphans"
EFFECTS = "engine/test_effects.py"

MUTANTS = (
    Mutant(
        "G1", "a submission that nobody could ring for is found by nobody",
        "agentruns/clock.py", f"{CHORES}, sweep)", f"{CHORES})",
        trials("F1", 1, 0),
    ),
    Mutant(
        "G2", "a finished step is run again",
        "agentruns/engine.py", "for step, path in named if path not in self.finished]", "for step, path in named]",
        trials("F1", 1, 7),
    ),
    Mutant(
        "G3", "other arguments than those that were intended pass for the same",
        "agentruns/effecting.py", "        if row.fingerprint != self.fingerprint:\n            self.ask",
        "        if False:\n            self.ask",
        tests(EFFECTS, "other_arguments"),
    ),
    Mutant(
        "G4", "the fence and the holder are not asked for",
        "agentruns/models/trait.py",
        "self.rows().filter(pk=self.pk, fence=self.fence, holder=self.holder, status=Status.RUNNING)",
        "self.rows().filter(pk=self.pk)",
        tests("engine/test_stale_worker.py", "stale"),
    ),
    Mutant(
        "G5", "an effect of which nobody knows is repeated under a new key",
        "agentruns/effecting.py",
        "        elif effect.is_younger_than(row, self.key_life):\n            self.send_again(row)",
        "        elif effect.is_younger_than(row, self.key_life):\n"
        "            self.begin(effect.generations(self.entry.run, self.path) + 1)",
        trials("F11", 1, 13),
    ),
    Mutant(
        "G6", "the budget is not asked for before a call",
        "agentruns/models/ledger.py", "            self._check_budget(call)\n", "",
        tests("engine/test_ledger.py", "budget"),
    ),
    Mutant(
        "G7", "a call whose answer was lost is booked at nothing",
        "agentruns/models/ledger.py",
        'Sum("reserved", filter=Q(state="unknown"))', 'Sum("reserved", filter=Q(state="?"))',
        trials("F1", 1, 9),
    ),
    Mutant(
        "G8", "nobody rings again for a run whose ring was lost",
        "agentruns/clock.py", "if not queues.ring(pk, fence):", "if True:",
        trials("F1", 1, 0),
    ),
    Mutant(
        "G9", "an intent does not ask for a cancel",
        "agentruns/models/trait.py", "cancel_requested_at=None, paused_at=None)", "paused_at=None)",
        tests("engine/test_orders.py", "cancel"),
    ),
    Mutant(
        "G10", "a yes is good for any payload",
        "agentruns/approving.py", "effect=self.effect, arguments_sha256=self.sha256\n        ).select",
        "effect=self.effect\n        ).select",
        tests("engine/test_approvals.py", "changed"),
    ),
    Mutant(
        "G11", "a wake that came before the park is lost",
        "agentruns/models/progress.py",
        "        if ripe and len(waits) < 2:\n            self.wake()\n            return\n", "",
        tests("engine/test_waits.py", ""),
    ),
    Mutant(
        "G12", "a worker that is asked to stop begins what comes next",
        "agentruns/heartbeat.py", "            raise Draining(\"this worker is stopping\")\n", "            pass\n",
        tests("test_worker_process.py", "is_asked_to_stop"),
    ),
)  # fmt: skip
