"""Walks the plan of a claimed run: which names are finished, what is next, and how each execution ended.

claimed run → next step → entry → function → value → checkpoint → next step … → one Outcome. The walk asks which names
are finished, never how far it had come.
"""

import logging

from django.db import Error as DatabaseError
from django.db import connection
from django.db.models import Max

from agentruns import build
from agentruns.atomic import AtomicExecution
from agentruns.entry import Authority, Entry
from agentruns.errors import CancelAsked, DeadlinePassed, Draining, LeaseLost, PauseAsked, SliceOver, UnknownPlan
from agentruns.execution import Execution, Upcoming, has_attempt
from agentruns.models import Attempt, Run, Step
from agentruns.models.fields import Corrupt
from agentruns.models.step import NewStep
from agentruns.outcome import Outcome, attempt_of, described, pause_after, wait_for
from agentruns.persist import is_passing, persist
from agentruns.plan import Plan, plans

log = logging.getLogger(__name__)

# A function that was entered so often, with no new row, goes round in circles: a person has to look.
FRUITLESS_ENTRIES = 20


class Walk:
    """One worker's way through a run that it holds."""

    def __init__(self, run: Run, authority: Authority) -> None:
        self.run, self.authority = run, authority
        self.finished: set[str] = set()
        self.begun: set[str] = set()  # what else has rows, where the plan has old names to go on under
        self.earlier: dict[str, int] = {}  # attempts that unfinished steps have had, by path
        self.entry: Entry | None = None

    def walk(self) -> str:
        """Goes on until the run is completed, parked, failed, released or lost; returns which."""
        try:
            return self.contained()
        except LeaseLost as lost:
            log.warning("Run %s: %s; another goes on.", self.run.pk, lost)
            self.note_stale(lost)
            return "lost"

    def note_stale(self, lost: LeaseLost) -> None:
        try:
            self.run.note("lease_lost", worker=self.run.worker, reason=str(lost))
        except DatabaseError as error:
            log.warning("Run %s: that its worker was late is not written (%s).", self.run.pk, error)

    def contained(self) -> str:
        """Trouble that is nobody's but ours stops this run by name, and neither the worker nor any other run."""
        try:
            return self.begin()
        except DatabaseError as error:
            connection.close()
            if not is_passing(error):
                return self.wait_for("operator", f"The database refuses this run's rows: {described(error)}")
            return self.wait_for("retry", described(error), seconds=pause_after(self.run.entries))
        except Exception as error:
            log.exception("Run %s: agentruns itself failed.", self.run.pk)
            return self.wait_for("operator", f"agentruns itself failed in this run: {described(error)[:500]}")

    def begin(self) -> str:
        try:
            plan = plans.get(self.run.plan)
        except UnknownPlan as unknown:
            return self.wait_for("code", str(unknown))
        if self.run.at_path and not plan.knows(self.run.at_path):
            return self.wait_for("code", f"Plan {plan.name!r} has no step {self.run.at_path!r} any more.")
        for name in ("task", "params"):
            if isinstance(broken := getattr(self.run, name), Corrupt):
                return self.wait_for("operator", f"The run's stored {name} cannot be read ({broken.reason}).")
        if self.run.entries >= FRUITLESS_ENTRIES:
            return self.wait_for("operator", f"Step {self.run.at_path} was entered {self.run.entries} times in vain.")
        self.look_back(plan)
        return self.steps(plan)

    def look_back(self, plan: Plan) -> None:
        """What is finished by name. The first claim after an interruption is an event; parks and wakes are none."""
        # By their paths, which an index has: with 100,000 sub-steps a look at each row's kind reads all their outputs.
        tops = Step.objects.filter(run=self.run).exclude(path__contains="/")
        self.finished = set(tops.values_list("path", flat=True))
        self.begun = self.run.begun() if any(step.aliases for step in plan.steps) else set()
        unfinished = Attempt.objects.filter(run=self.run).exclude(outcome="finished")
        self.earlier = dict(unfinished.values_list("path").annotate(Max("number")).order_by())
        last = self.run.attempts.order_by("-ended_at", "-pk").first() if self.earlier else None
        if last is not None and last.outcome == "interrupted":
            self.run.note("resumed", path=self.run.at_path, worker=self.run.worker, finished=len(self.finished))

    def steps(self, plan: Plan) -> str:
        named = ((step, step.name_in(self.finished, self.begun)) for step in plan.steps)
        todo = [(step, path) for step, path in named if path not in self.finished]
        if not todo:
            persist(self.authority, lambda: self.run.complete(build.current()), self.is_over)
            return "completed"
        for (step, path), following in zip(todo, [*todo[1:], None], strict=True):
            if ending := self.stop():
                return ending
            number = self.enter(path)
            self.entry = Entry(self.run, plan, step, path, number, self.authority, self.finished)
            upcoming = self.upcoming(following and following[1])
            outcome = (AtomicExecution if step.atomic else Execution)(self.entry, upcoming).outcome()
            if outcome.kind != "finished":
                return self.end(outcome)
            self.advance(path, upcoming)
        return "completed"

    def upcoming(self, path: str | None) -> Upcoming:
        return Upcoming(path, self.earlier.get(path or "", 0) + 1)

    def advance(self, path: str, upcoming: Upcoming) -> None:
        """What the checkpoint has made true."""
        self.finished.add(path)
        self.entry = None
        self.run.at_path, self.run.at_number, self.run.failures = upcoming.path or "", upcoming.number, 0

    def stop(self) -> str | None:
        """Before a step is entered: whether this worker should give the run back, or end it."""
        try:
            self.authority.boundary()
        except (Draining, SliceOver, PauseAsked) as why:
            cause = {Draining: "drain", SliceOver: "slice"}.get(type(why), "pause")
            persist(self.authority, lambda: self.run.release(cause=cause), self.is_over)
            return "released"
        except CancelAsked:
            persist(self.authority, lambda: self.run.stop(None), self.is_over)
            return "cancelled"
        except DeadlinePassed as why:
            reason = str(why)
            persist(self.authority, lambda: self.run.fail(None, reason), self.is_over)
            return "failed"
        return None

    def enter(self, path: str) -> int:
        """Makes `path` the step at work, if that was not foreseen; returns its attempt's number."""
        if self.run.at_path != path:
            number = self.earlier.get(path, 0) + 1
            persist(self.authority, lambda: self.run.enter(path, number, build.current()), lambda: False)
            self.run.at_path, self.run.at_number, self.run.failures = path, number, 0
        return self.run.at_number

    # --- how it is written --------------------------------------------------------------------------------------

    def end(self, outcome: Outcome) -> str:
        """Writes how the walk ends: one verb of the run."""
        assert self.entry is not None
        ended, run = attempt_of(self.entry, outcome), self.run

        def write() -> None:
            rows = self.unsaved()
            match outcome.kind:
                case "failed":
                    run.fail(ended, outcome.reason, rows)
                case "retry" | "parked":
                    run.park(outcome.waits, ended, rows, failed=outcome.kind == "retry", reason=outcome.reason)
                case "cancelled":
                    run.stop(ended, rows)
                case _:
                    run.release(ended, cause=outcome.cause, steps=rows)

        persist(self.authority, write, lambda: has_attempt(self.run, ended))
        return outcome.kind

    def unsaved(self) -> list[NewStep]:
        """What was learned since the last commit. An exception may have struck between the two."""
        assert self.entry is not None
        pending = list(self.entry.pending)
        paths = [row.path for row in pending]
        under = Step.objects.filter(run=self.run, top=self.entry.path)
        there = set(under.filter(path__in=paths).values_list("path", flat=True)) if paths else ()
        return [row for row in pending if row.path not in there]

    def wait_for(self, kind: str, reason: str, seconds: float | None = None) -> str:
        """Parks with no step entered: the plan is gone, a row is broken, or a person has to look."""
        wait = wait_for(self.run.at_path or "plan", kind, seconds=seconds, reason=reason)
        persist(self.authority, lambda: self.run.park([wait], None, reason=reason), self.is_over)
        return "parked"

    # --- whether a write landed ---------------------------------------------------------------------------------

    def is_over(self) -> bool:
        return not self.run.is_held()
