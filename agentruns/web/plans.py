"""`/plans/`: what can be run here, step by step, and what its runs have cost so far."""

from decimal import Decimal
from typing import Any, NamedTuple

from django.conf import settings
from django.db.models import Avg, Count, Max, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from agentruns import plan
from agentruns.models import Run, Status
from agentruns.models.status import LIVING
from agentruns.plan import StepFunction


class StepCard(NamedTuple):
    """A declared step for a page. Not the step itself: it is callable, and a template would call it."""

    name: str
    title: str
    about: str
    retries: int
    timeout: float
    aliases: tuple[str, ...]

    @classmethod
    def of(cls, one: StepFunction) -> "StepCard":
        return cls(one.name, one.title, one.about, one.retries, one.timeout, one.aliases)


class PlanCard(NamedTuple):
    """A plan for a page, with the budget (USD) that a run of it has unless it says otherwise."""

    name: str
    title: str
    description: str
    budget: Decimal
    steps: list[StepCard]


def cards() -> list[PlanCard]:
    """Every plan there is, by name."""
    return [
        PlanCard(
            name=one.name,
            title=one.title,
            description=one.description,
            budget=one.budget or settings.AGENT_BUDGET_USD or Decimal(0),
            steps=[StepCard.of(step) for step in one.steps],
        )
        for one in plan.plans.all().values()
    ]


@require_safe
def plans(request: HttpRequest) -> HttpResponse:
    """Every plan with its steps; the figures are of the runs that this person may see."""
    figures = _figures(request)
    listed = [(card, figures.pop(card.name, None)) for card in cards()]
    gone = [row for row in figures.values() if row["living"]]
    return render(request, "plans.html", {"plans": listed, "gone": gone})


def _figures(request: HttpRequest) -> dict[str, dict[str, Any]]:
    by_plan = Run.objects.visible_to(request.user).order_by().values("plan")
    rows = by_plan.annotate(
        runs=Count("pk"),
        completed=Count("pk", filter=Q(status=Status.COMPLETED)),
        living=Count("pk", filter=Q(status__in=LIVING)),
        mean=Avg("spent", filter=Q(status=Status.COMPLETED)),
        dearest=Max("spent"),
    )
    return {row["plan"]: dict(row) for row in rows}
