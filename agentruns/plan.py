"""What an author declares: steps and plans; and the registry that finds them in every installed app."""

import importlib
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cached_property, update_wrapper
from types import ModuleType
from typing import Any, overload

from agentruns.errors import PlanError, UnknownPlan

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
PATH_LENGTH = 200
DEFAULT_RETRIES = 3
DEFAULT_TIMEOUT = 900


def name_of(name: object, what: str = "step") -> str:
    """`name`, or PlanError: letters, digits, dot, underscore, hyphen; at most 64, the first a letter or a digit."""
    if isinstance(name, str) and NAME.fullmatch(name):
        return name
    raise PlanError(
        f"{name!r} is no name for a {what}: use 1 to 64 letters, digits, '.', '_' or '-', the first a letter or digit."
    )


class StepFunction:
    """A function marked with `@step`: what runs, under which name, how often and how long (seconds) it may be tried."""

    def __init__(
        self,
        fn: Callable[..., Any],
        name: str | None = None,
        aliases: Iterable[str] = (),
        retries: int = DEFAULT_RETRIES,
        timeout: float = DEFAULT_TIMEOUT,
        atomic: bool = False,
    ) -> None:
        self.fn = fn
        self.name = name_of(name if name is not None else fn.__name__)
        if isinstance(aliases, str):
            raise PlanError(f"Step {self.name!r} has aliases={aliases!r}: give a list, aliases=[{aliases!r}].")
        self.aliases = tuple(name_of(alias, "alias") for alias in aliases)
        if not (isinstance(retries, int) and retries >= 0):
            raise PlanError(f"Step {self.name!r} has retries={retries!r}: give a whole number, 0 or more.")
        if not (isinstance(timeout, int | float) and 0 < timeout < 10**6):
            raise PlanError(f"Step {self.name!r} has timeout={timeout!r}: give a number of seconds above 0.")
        self.retries = retries
        self.timeout = float(timeout)
        self.atomic = atomic
        update_wrapper(self, fn)

    def __call__(self, ctx: Any, *args: Any) -> Any:
        return self.fn(ctx, *args)

    def __repr__(self) -> str:
        return f"<step {self.name}>"

    @property
    def names(self) -> tuple[str, ...]:
        """Its name, and those it had before."""
        return (self.name, *self.aliases)

    def name_in(self, finished: Container[str], begun: Container[str]) -> str:
        """The name under which a run knows it, to its end: one that is `finished`; else an old one under which
        anything was `begun`; else its own."""
        done = (name for name in self.names if name in finished)
        return next(done, None) or next((alias for alias in self.aliases if alias in begun), self.name)

    @property
    def title(self) -> str:
        return self.name.replace("_", " ").replace("-", " ").capitalize()

    @property
    def about(self) -> str:
        """The first line of the function's docstring, for pages."""
        return (self.fn.__doc__ or "").strip().split("\n")[0]


@overload
def step(fn: Callable[..., Any], /) -> StepFunction: ...
@overload
def step(
    *,
    name: str | None = None,
    aliases: Iterable[str] = (),
    retries: int = 3,
    timeout: float = 900,
    atomic: bool = False,
) -> Callable[[Callable[..., Any]], StepFunction]: ...
def step(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Marks a function of `(ctx, *args)` as a durable step.

    `name`: what it is known by for ever (default: the function's name). `aliases`: names it had before; a run in flight
    goes on under them. `retries`: how often a failure is tried again (3). `timeout`: seconds one entry may run (900).
    `atomic`: the function's own database writes and its checkpoint are one transaction, of 5 s at most.
    Raises PlanError for a bad name or number.
    """
    if fn is not None:
        return StepFunction(fn)
    return lambda function: StepFunction(function, **options)


@dataclass(frozen=True)
class Plan:
    """A named, ordered list of steps: a value, known before a run of it starts.

    `budget`: USD a run may spend unless its submission says otherwise. `title`, `description`: for people. Raises
    PlanError for doubled names, aliases of living steps, and an empty list.
    """

    name: str
    steps: tuple[StepFunction, ...]
    title: str = ""
    budget: Decimal | None = None
    description: str = ""

    def __init__(
        self,
        name: str,
        steps: Iterable[StepFunction | Callable[..., Any]],
        *,
        title: str = "",
        budget: str | Decimal | None = None,
        description: str = "",
    ) -> None:
        wrapped = tuple(one if isinstance(one, StepFunction) else StepFunction(one) for one in steps)
        object.__setattr__(self, "name", name_of(name, "plan"))
        object.__setattr__(self, "steps", wrapped)
        object.__setattr__(self, "title", title or name.replace("_", " ").replace("-", " ").capitalize())
        object.__setattr__(self, "budget", self._budget(budget))
        object.__setattr__(self, "description", description)
        self._check_names()

    def _budget(self, budget: str | Decimal | None) -> Decimal | None:
        if budget is None:
            return None
        try:
            amount = Decimal(budget)
        except (InvalidOperation, TypeError, ValueError):
            amount = Decimal(-1)
        if not (amount.is_finite() and amount > 0):
            raise PlanError(f"Plan {self.name!r} has budget={budget!r}: give an amount in USD above 0, such as '5.00'.")
        return amount

    def _check_names(self) -> None:
        if not self.steps:
            raise PlanError(f"Plan {self.name!r} has no steps: give it at least one.")
        names = Counter(one.name for one in self.steps)
        for name, times in names.items():
            if times > 1:
                raise PlanError(f"Plan {self.name!r} has two steps called {name!r}: give one of them @step(name=…).")
        aliases = Counter(alias for one in self.steps for alias in one.aliases)
        for alias, times in aliases.items():
            if alias in names:
                raise PlanError(
                    f"Plan {self.name!r}: the alias {alias!r} is the name of another step that it still has."
                )
            if times > 1:
                raise PlanError(f"Plan {self.name!r}: two steps claim the alias {alias!r}; leave it to one.")

    @property
    def names(self) -> list[str]:
        return [one.name for one in self.steps]

    @cached_property
    def by_name(self) -> dict[str, StepFunction]:
        """Its steps by their names and their aliases."""
        return {name: one for one in self.steps for name in one.names}

    def knows(self, name: str) -> bool:
        """Whether a step is, or was, called that."""
        return name in self.by_name


class Registry:
    """Every plan of the installed apps' `plans` modules and of AGENTRUNS_PLANS, by name; loaded once, when asked."""

    def __init__(self) -> None:
        self._plans: dict[str, Plan] | None = None
        self.modules: list[ModuleType] = []

    def all(self) -> dict[str, Plan]:
        if self._plans is None:
            self._plans = self._load()
        return self._plans

    def get(self, name: str) -> Plan:
        """The plan called `name`; raises UnknownPlan, which lists those there are."""
        known = self.all()
        if not (isinstance(name, str) and name in known):
            raise UnknownPlan(str(name)[:80], sorted(known))
        return known[name]

    def forget(self) -> None:
        """Loads anew at the next use: for tests that change AGENTRUNS_PLANS."""
        self._plans = None

    def _load(self) -> dict[str, Plan]:
        self.modules = list(self._modules())
        plans: dict[str, Plan] = {}
        for module in self.modules:
            for value in vars(module).values():
                if isinstance(value, Plan) and plans.setdefault(value.name, value) is not value:
                    raise PlanError(f"Two plans are called {value.name!r}; one is in {module.__name__}. Rename one.")
        return plans

    def _modules(self) -> Iterable[ModuleType]:
        from django.apps import apps
        from django.conf import settings
        from django.utils.module_loading import module_has_submodule

        for app in apps.get_app_configs():
            if app.module is not None and module_has_submodule(app.module, "plans"):
                yield importlib.import_module(f"{app.name}.plans")
        for name in settings.AGENTRUNS_PLANS:
            try:
                yield importlib.import_module(name)
            except ModuleNotFoundError as error:
                if error.name is None or not name.startswith(error.name):
                    raise
                raise PlanError(f"AGENTRUNS_PLANS names {name!r}, but there is no such module.") from None


plans = Registry()
