"""From this step again: a fork is a new run that inherits what was finished before it, and pays for what follows."""

import uuid
from typing import Any, Self

from django.db import transaction

from agentruns.errors import Refusal
from agentruns.models.key import IdempotencyKey
from agentruns.models.moment import now
from agentruns.models.step import Step
from agentruns.models.trait import Trait
from agentruns.plan import Plan, plans


class Forking(Trait):
    """fork, inherited_by_fork, effects_from."""

    def fork(self, path: str, by: Any = None, budget: Any = None) -> Self:
        """A new run, due at once, that keeps every finished path but `path`, what is under, around and begun after it,
        and later top-level steps. Copies Step rows; no calls, keys, grants or waits.

        Raises Refusal for a path that the run does not know. Effects that this run did, or may have done, from there
        on (effects_from) need a person's grant in the fork.
        """
        run: Any = self
        plan = plans.get(run.plan)
        kept = self.inherited_by_fork(plan, path)
        finished = {step.path for step in kept if step.kind == "step"}
        names = [one.name_in(finished, {step.top for step in kept}) for one in plan.steps]
        upcoming = next((name for name in names if name not in finished), "")
        fork = type(self)(
            plan=run.plan, title=run.title, task=run.task, params=run.params, model=run.model, owner=by or run.owner,
            priority=run.priority, budget=budget or run.budget, forked_from=run, at_path=upcoming,
            submission_key=uuid.uuid4().hex, created_at=now(), enqueued_at=now(), notify=run.notify,
        )  # fmt: skip
        with transaction.atomic():
            fork.save(force_insert=True)
            Step.objects.bulk_create([copy_of(step, fork) for step in kept])
            fork.record("forked", path=path, by=by, origin=str(run.pk), kept=len(finished))
            fork.ring_after_commit()
        return self.rows().get(pk=fork.pk)

    def inherited_by_fork(self, plan: Plan, path: str) -> list[Step]:
        """The Step rows that a fork from `path` would keep."""
        run: Any = self
        top = path.split("/")[0]
        order = {name: number for number, one in enumerate(plan.steps) for name in (one.name, *one.aliases)}
        if top not in order:
            raise Refusal(f"Plan {plan.name} has no step {top[:64]!r}. Fork from one of: {', '.join(plan.names)}.")
        rows = list(Step.objects.filter(run=run).order_by("pk"))
        chosen = next((step for step in rows if step.path == path), None)
        if chosen is None and "/" in path:
            raise Refusal(f"Run {run.short_id} has no finished path {path[:80]!r} to fork from.")
        began = chosen.started_at if chosen else None

        def stays(step: Step) -> bool:
            if step.top != top:
                return order.get(step.top, -1) < order[top]
            around_or_under = (path + "/").startswith(step.path + "/") or step.path.startswith(path + "/")
            after = began is not None and step.started_at is not None and step.started_at > began
            return not (around_or_under or after)

        return [step for step in rows if stays(step)]

    def effects_from(self, kept: list[Step]) -> list[str]:
        """Paths of effects that this run did, or may have done, and that a fork keeping `kept` would come to again."""
        paths = {step.path for step in kept}
        begun = IdempotencyKey.objects.filter(scope="effect", run_id=self.pk).exclude(state="failed")
        return sorted({row.path for row in begun} - paths)


def copy_of(step: Step, run: Any) -> Step:
    return Step(
        run=run, path=step.path, top=step.top, kind=step.kind, output=step.output, body_id=step.body_id,
        labels=step.labels, reads=step.reads, seal=step.seal, started_at=step.started_at, finished_at=step.finished_at,
    )  # fmt: skip
