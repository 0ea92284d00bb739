"""What must be so after a trial, from the oracle's log, the provider's ledger and plain SQL."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal

from tests.trials.house import House
from tests.trials.rows import Rows

STEPS = ("gather", "parts", "charge", "nap", "read_mail", "think", "sign", "publish")
EFFECTS = ("charge", "publish")
# A worker's clock and the oracle's are one, but a log line and a commit are not one moment.
SLACK_SECONDS = 0.05


@dataclass
class Trial:
    """What was done to which runs. `ends`: statuses that are right. `blind`: kills that may have fallen between an
    intent of a call and its id, each of which may cost one call more."""

    runs: list[str]
    ends: tuple[str, ...] = ("completed",)
    struck_at: float | None = None
    blind: int = 0
    stopped_at: dict[str, float] = field(default_factory=dict)
    once: bool = True
    """Whether the oracle kept its keys, so that each effect is done once."""
    generations: int = 1
    """Keys that an effect may have come under: one more for each retry of a known failure."""
    said: list[str] = field(default_factory=list)
    """Violations that the fault itself saw."""


class Judge:
    def __init__(self, house: House) -> None:
        self.house, self.rows = house, Rows(house.url)

    def violations(self, trial: Trial) -> list[str]:
        ledger = self.house.provider.ledger()["calls"]
        found: list[str] = []
        for run in trial.runs:
            calls = [call for call in ledger if call["metadata"].get("run") == run]
            for look in (
                self.row(trial, run),
                self.effects(trial, run),
                self.told(run),
                self.money(trial, run, calls),
            ):
                found += [f"{run[:8]}: {violation}" for violation in look]
        return found

    # --- rows -------------------------------------------------------------------------------------------------------

    def row(self, trial: Trial, run: str) -> Iterator[str]:
        key = self.rows.id(run)
        found = self.rows.ask(
            "SELECT status, holder, lease_expires_at, fence, reason FROM agentruns_run WHERE id = ?", key
        )
        if not found:
            yield "the run is gone"
            return
        status, holder, lease, fence, reason = found[0]
        if status not in trial.ends:
            yield f"it is {status} ({reason}), and should be {' or '.join(trial.ends)}"
        if holder or lease is not None:
            yield "it is held although it is over"
        if waits := self.rows.one("SELECT count(*) FROM agentruns_wait WHERE run_id = ? AND closed_at IS NULL", key):
            yield f"{waits} waits are open although it is over"
        yield from self.steps(key, status, fence)

    def steps(self, key: str, status: str, fence: int) -> Iterator[str]:
        paths = [path for (path,) in self.rows.ask("SELECT path FROM agentruns_step WHERE run_id = ?", key)]
        for path, count in Counter(paths).items():
            if count > 1:
                yield f"step {path} was kept {count} times"
        if status == "completed" and (missing := [name for name in STEPS if name not in paths]):
            yield f"it is completed without {', '.join(missing)}"
        finished = self.rows.ask(
            "SELECT path, count(*) FROM agentruns_attempt WHERE run_id = ? AND outcome = 'finished' GROUP BY path", key
        )
        for path, count in finished:
            if count > 1:
                yield f"step {path} was finished {count} times"
        workers = self.rows.one(
            "SELECT count(*) FROM agentruns_attempt WHERE run_id = ? AND outcome = 'interrupted'", key
        )
        if fence < 1 + workers:
            yield f"its fence is {fence} after {workers} interruptions"

    # --- what the outside saw ---------------------------------------------------------------------------------------

    def effects(self, trial: Trial, run: str) -> Iterator[str]:
        lines = self.house.oracle_lines(run)
        status = self.rows.one("SELECT status FROM agentruns_run WHERE id = ?", self.rows.id(run))
        for name in EFFECTS:
            mine = [line for line in lines if line["name"] == name]
            done = [line for line in mine if line["event"] == "done"]
            if len(done) > 1 and trial.once:
                yield f"effect {name} was done {len(done)} times"
            if status == "completed" and not done:
                yield f"it is completed, and effect {name} was never done"
            if len({(line["key"], line["sha"]) for line in mine}) > trial.generations:
                yield f"effect {name} came under several keys or bodies"
            yield from self.late(trial, run, name, mine)

    def told(self, run: str) -> Iterator[str]:
        """Each event is told under one id, however often, and none is forgotten once it is marked as sent."""
        arrived = {line["key"]: line["name"] for line in self.house.oracle_lines(run) if line["event"] == "told"}
        for name, count in Counter(arrived.values()).items():
            if count > 1:
                yield f"{name} was told as {count} different events"
        sent = self.rows.ask(
            "SELECT id FROM agentruns_outbox WHERE run_id = ? AND sent_at IS NOT NULL", self.rows.id(run)
        )
        for (number,) in sent:
            if f"msg_{str(number).replace('-', '')}" not in arrived:
                yield f"notification {number} is marked as sent, and never arrived"

    def late(self, trial: Trial, run: str, name: str, lines: list[dict]) -> Iterator[str]:
        """Arrivals after the step's commit, or after a cancel's."""
        committed = self.rows.one(
            "SELECT finished_at FROM agentruns_step WHERE run_id = ? AND path = ?", self.rows.id(run), name
        )
        intended = self.rows.ask(
            "SELECT created_at FROM agentruns_idempotencykey WHERE run_id = ? AND scope = 'effect' AND path LIKE ?",
            self.rows.id(run), f"{name}/%",
        )  # fmt: skip
        stopped = trial.stopped_at.get(run)
        for (moment,) in intended:
            if stopped is not None and self.rows.epoch(moment) > stopped + SLACK_SECONDS:
                yield f"effect {name} was intended after the cancel had committed"
        for line in lines:
            latest = float("inf") if committed is None else self.rows.epoch(committed) + SLACK_SECONDS
            if line["event"] == "arrived" and line["at"] > latest:
                yield f"effect {name} was called after its step was committed"

    # --- money ------------------------------------------------------------------------------------------------------

    def money(self, trial: Trial, run: str, calls: list[dict]) -> Iterator[str]:
        key = self.rows.id(run)
        sql = "SELECT path, state, cost, reserved, maybe_twice FROM agentruns_call WHERE run_id = ?"
        booked = self.rows.ask(sql, key)
        twice = sum(bool(row[4]) for row in booked)
        for path, count in Counter(call["metadata"]["path"] for call in calls).items():
            if count > 1 + trial.blind:
                yield f"{path} was paid {count} times"
            elif count > 1 and not twice:
                yield f"{path} was paid {count} times, and is not marked"
        bill = sum((Decimal(call["cost_usd"]) for call in calls), Decimal(0))
        spent, unknown, reserved, budget = (
            Decimal(str(value)) for value in self.rows.ask(
                "SELECT spent, unknown, reserved, budget FROM agentruns_run WHERE id = ?", key
            )[0]
        )  # fmt: skip
        settled = ("completed", "incomplete", "failed", "cancelled", "expired")
        sums = {
            "spent": sum((Decimal(str(row[2])) for row in booked if row[1] in settled), Decimal(0)),
            "unknown": sum((Decimal(str(row[3])) for row in booked if row[1] == "unknown"), Decimal(0)),
            "reserved": sum((Decimal(str(row[3])) for row in booked if row[1] in ("intent", "submitted")), Decimal(0)),
        }
        for name, cached in (("spent", spent), ("unknown", unknown), ("reserved", reserved)):
            if abs(cached - sums[name]) > Decimal("1e-9"):
                yield f"{name} is {cached}, and its calls add up to {sums[name]}"
        if bill > budget:
            yield f"the provider billed {bill}, over the budget of {budget}"
        if spent + unknown + reserved + Decimal("1e-9") < bill:
            yield f"the ledger has {spent + unknown + reserved}, and the provider billed {bill}"

    def recovery(self, trial: Trial) -> float | None:
        """Seconds from the fault to the next thing that was written for its run."""
        if trial.struck_at is None:
            return None
        moments = []
        for run in trial.runs:
            for table, column in (("step", "finished_at"), ("call", "created_at"), ("attempt", "started_at")):
                sql = f"SELECT {column} FROM agentruns_{table} WHERE run_id = ? AND {column} IS NOT NULL"
                moments += [self.rows.epoch(moment) for (moment,) in self.rows.ask(sql, self.rows.id(run))]
        later = [moment - trial.struck_at for moment in moments if moment > trial.struck_at]
        return min(later, default=None)
