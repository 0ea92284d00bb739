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


MUTANTS = (
    Mutant(
        "G1", "a submission is rung for before it is committed, and the sweep is gone",
        "agentruns/clock.py", "(Run.wake_due, Run.wake_for_slots, Run.wake_priced, rescue_expired, end_unruly, lose_orphans, sweep)",
        "(Run.wake_due, Run.wake_for_slots, Run.wake_priced, rescue_expired, end_unruly, lose_orphans)", trials("F1", 1, 0),
    ),
    Mutant(
        "G2", "a finished step is run again", "agentruns/engine.py",
        "if (path := self.path_of(step)) not in self.finished]", "if (path := self.path_of(step))]",
        trials("F1", 1, 7),
    ),
    Mutant(
        "G3", "an effect's changed arguments are sent under the old key", "agentruns/models/effect.py",
        "fingerprint=encoding.fingerprint(arguments)", 'fingerprint="0" * 64', tests("engine/test_effects.py", "argument"),
    ),
    Mutant(
        "G4", "the fence and the holder are not asked for", "agentruns/models/trait.py",
        "self.rows().filter(pk=self.pk, fence=self.fence, holder=self.holder, status=Status.RUNNING)",
        "self.rows().filter(pk=self.pk)", tests("engine/test_stale_worker.py", "stale"),
    ),
    Mutant(
        "G5", "an effect has a new key on each attempt", "agentruns/context.py",
        'return f"{self.run_id}:{self._path}"', 'return f"{self.run_id}:{self._path}:{self._entry.number}"',
        trials("F11", 1, 13),
    ),
    Mutant(
        "G6", "the budget is not asked for before a call", "agentruns/models/ledger.py",
        "            self._check_budget(call)\n", "", tests("engine/test_ledger.py", "budget"),
    ),
    Mutant(
        "G7", "a call whose answer was lost is booked at nothing", "agentruns/models/ledger.py",
        'unknown=Coalesce(Sum("reserved", filter=Q(state="unknown")), ZERO)', 'unknown=Coalesce(Sum("reserved", filter=Q(state="?")), ZERO)',
        trials("F1", 1, 9),
    ),
    Mutant(
        "G8", "nobody rings again for a run whose ring was lost", "agentruns/clock.py",
        "if not queues.ring(pk, fence):", "if True:", trials("F1", 1, 0),
    ),
    Mutant(
        "G9", "an intent does not ask for a cancel", "agentruns/models/trait.py",
        "cancel_requested_at=None, paused_at=None)", "paused_at=None)", tests("engine/test_orders.py", "cancel"),
    ),
    Mutant(
        "G10", "a yes is good for any payload", "agentruns/approving.py",
        "effect=self.effect, arguments_sha256=self.sha256\n        ).select", "effect=self.effect\n        ).select",
        tests("engine/test_approvals.py", "changed"),
    ),
    Mutant(
        "G11", "a wake that came before the park is lost", "agentruns/models/progress.py",
        "        if self.is_ripe(waits):\n            self.wake()\n            return\n", "", tests("engine/test_waits.py", ""),
    ),
    Mutant(
        "G12", "a worker that is asked to stop begins the next step", "agentruns/heartbeat.py",
        "        if queues.draining():\n            crash.point(\"draining\")\n            raise Draining(\"this worker is stopping\")\n",
        "", tests("test_worker_process.py", "asked_to_stop"),
    ),
)  # fmt: skip
