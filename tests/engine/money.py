"""What the tests of asks, calls and budgets share: the provider's own count beside ours, and deaths on purpose."""

import pkgutil
import time
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from agentruns.models import Call, Run
from agentruns.models.ledger import sums
from agentruns.models.receipt import receipt
from tests.providers import DemoProvider

ASK = "work/ask"


def generations(provider: DemoProvider, run: Run) -> list[dict[str, Any]]:
    """The provider's ledger lines of this run: what it generated, and billed."""
    return [line for line in provider.ledger()["calls"] if line["metadata"].get("run") == str(run.pk)]


def posts(provider: DemoProvider, run: Run) -> list[dict[str, Any]]:
    """Every POST of this run that reached the provider, refused ones included."""
    return [post for post in provider.ledger()["posts"] if post["metadata"].get("run") == str(run.pk)]


def bill(provider: DemoProvider, run: Run) -> Decimal:
    return sum((Decimal(line["cost_usd"]) for line in generations(provider, run)), Decimal(0))


def paths_paid(provider: DemoProvider, run: Run) -> Counter[str]:
    return Counter(line["metadata"]["path"] for line in generations(provider, run))


def states(run: Run, path: str = ASK) -> list[str]:
    return list(Call.objects.filter(run=run, path=path).order_by("number").values_list("state", flat=True))


def calls(run: Run, path: str = ASK) -> list[Call]:
    return list(Call.objects.filter(run=run, path=path).order_by("number"))


def check_books(run: Run) -> None:
    """The cached totals are the sums of the rows, and the receipt says the same."""
    run.refresh_from_db()
    totals, paid = sums(Call.objects.filter(run=run)), receipt(run)
    assert (run.spent, run.unknown, run.reserved) == (totals["spent"], totals["unknown"], totals["reserved"])
    assert (paid.spent, paid.unknown, paid.reserved) == (run.spent, run.unknown, run.reserved)
    assert sum(paid.by_top.values()) == paid.spent


def check_bill(provider: DemoProvider, run: Run) -> None:
    """Nothing is open or unknown, and we have booked to the last digit what the provider has billed."""
    check_books(run)
    assert (run.unknown, run.reserved) == (0, 0)
    assert run.spent == bill(provider, run)


def wait_until(holds: Callable[[], object], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.02)


def tick_until(shop: Any, run: Run, *expected: str) -> None:
    """The clock works, and no worker, until the calls at the ask are in these states."""

    def ticked() -> bool:
        shop.tick()
        return states(run) == list(expected)

    wait_until(ticked)


class Deaths:
    """A worker that dies at a point of ours: nothing of its process runs after it, but what was committed stays."""

    def __init__(self, shop: Any, patch: pytest.MonkeyPatch) -> None:
        self.shop, self.patch = shop, patch

    def at(self, target: str, run: Run, *, after: bool = False) -> None:
        """Works until `target` ("module.name") is called; dies before it, or after it; the run is then rescued."""
        with self.patch.context() as patch:
            patch.setattr(target, dying(target, after))
            with pytest.raises(KeyboardInterrupt):
                self.shop.until(run)
        self.shop.expire(run)
        assert run.rescue("lease")


def dying(target: str, after: bool) -> Callable[..., Any]:
    original = pkgutil.resolve_name(target)

    def die(*args: Any, **options: Any) -> None:
        if after:
            original(*args, **options)
        raise KeyboardInterrupt

    return die
