"""The list of runs: filters and cursors from the URL, one page of rows, what is newer, and its tag for polls."""

import string
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.core.cache import cache
from django.db.models import Count, Q, QuerySet, Subquery, Value

from agentruns import encoding
from agentruns.models import Run, Status
from agentruns.web.row import Row, rows_of
from agentruns.web.words import NEEDS_A_PERSON

PAGE = 50
# New rows are counted up to here; beyond, "99+" says enough.
NEWER_CAP = 100
# With more runs than this, the counts on the filters may be as old as COUNTS_SECONDS: counting them is a scan.
MANY_RUNS = 5_000
COUNTS_SECONDS = 10
FILTERS = {
    "": "All",
    "running": "Running",
    "needs_you": "Needs you",
    "waiting": "Waiting",
    "queued": "Queued",
    "failed": "Failed",
    "completed": "Completed",
    "cancelled": "Cancelled",
}
PAYLOAD = ("task", "params")


class Chip(NamedTuple):
    """A status filter: where it leads, how many runs it has, whether it is the one in force."""

    label: str
    query: str
    runs: int
    is_current: bool


@dataclass
class Listing:
    """What one person sees of the runs under the filters of a URL.

    `after` and `before` are ids of the runs at a page's edges. `top` is the newest run when the page was drawn: later
    ones are counted, not pushed in above what is being read.
    """

    user: Any
    status: str = ""
    search: str = ""
    after: uuid.UUID | None = None
    before: uuid.UUID | None = None
    top: uuid.UUID | None = None
    rows: list[Row] = field(default_factory=list)

    @classmethod
    def asked_by(cls, user: Any, query: Mapping[str, str]) -> "Listing":
        """From a query string; whatever is not understood there is left out, as if it had not been given."""
        status = query.get("status", "")
        return cls(
            user=user,
            status=status if status in FILTERS else "",
            search=query.get("q", "").strip()[:200],
            after=_id(query.get("after")),
            before=_id(query.get("before")),
            top=_id(query.get("top")),
        )

    # --- which runs ---

    @cached_property
    def matching(self) -> QuerySet[Run]:
        return self._searched().filter(_status(self.status))

    def _searched(self) -> QuerySet[Run]:
        runs = Run.objects.visible_to(self.user)
        if not self.search:
            return runs
        return runs.filter(Q(title__icontains=self.search) | _id_prefix(self.search))

    def _page(self) -> QuerySet[Run]:
        """The rows of this page, newest first; of the page before a run, the nearest ones last."""
        if self.before:
            return self.matching.filter(_newer_than(self.before)).order_by("created_at", "pk")
        runs = self.matching.order_by("-created_at", "-pk")
        if self.after:
            return runs.filter(_older_than(self.after))
        return runs.exclude(_newer_than(self.top)) if self.top else runs

    # --- one page ---

    def load(self) -> "Listing":
        """Reads the page: a constant number of queries, and never a task or an output."""
        runs = list(self._page().select_related("owner").defer(*PAYLOAD)[: PAGE + 1])
        self._is_cut = len(runs) > PAGE
        runs = runs[:PAGE]
        if self.before:
            runs.reverse()
        self.rows = rows_of(runs)
        if not self.top and not self.is_later_page and runs:
            self.top = runs[0].pk
        return self

    @property
    def is_later_page(self) -> bool:
        return bool(self.after or self.before)

    @cached_property
    def newer(self) -> int:
        """How many runs came after the newest of this page, at most NEWER_CAP; none are counted on later pages."""
        return self._newer_runs()[:NEWER_CAP].count() if self.counts_newer else 0

    @property
    def counts_newer(self) -> bool:
        return bool(self.top) and not self.is_later_page

    def _newer_runs(self) -> QuerySet[Run]:
        return self.matching.filter(_newer_than(self.top))

    @property
    def older_query(self) -> str:
        """The next page's query string, or nothing when this is the last."""
        has_older = self._is_cut or bool(self.before)
        return self.query(after=self.rows[-1].run.pk.hex) if has_older and self.rows else ""

    @property
    def newer_query(self) -> str:
        """The page before this one, or nothing on the first."""
        if self.before and not self._is_cut:
            return self.query()
        return self.query(before=self.rows[0].run.pk.hex) if self.is_later_page and self.rows else ""

    def query(self, **cursor: str) -> str:
        """`?…` of these filters and a cursor; `?` alone for none."""
        given = {"status": self.status, "q": self.search, **cursor}
        return "?" + urlencode({name: value for name, value in given.items() if value})

    @property
    def poll_query(self) -> str:
        """What a poll asks for: this page, and the top that it was drawn under."""
        cursors = {"after": self.after, "before": self.before, "top": self.top}
        return self.query(**{name: value.hex for name, value in cursors.items() if value})

    # --- the filters ---

    @cached_property
    def chips(self) -> list[Chip]:
        counts = self._counts()
        return [
            Chip(label, Listing(self.user, status=name, search=self.search).query(), counts[name], name == self.status)
            for name, label in FILTERS.items()
        ]

    def _counts(self) -> dict[str, int]:
        place = f"runs:counts:{self.user.pk}:{int(self.user.is_staff)}:{encoding.fingerprint(self.search)[:16]}"
        if kept := cache.get(place):
            return dict(kept)
        counts = self._searched().aggregate(
            **{name or "all": Count("pk", filter=_status(name)) for name in FILTERS if name != "all"}
        )
        found = {name: counts[name or "all"] for name in FILTERS}
        if found[""] > MANY_RUNS:
            cache.set(place, found, COUNTS_SECONDS)
        return found

    # --- the poll ---

    def tag_parts(self) -> tuple[object, ...]:
        """What this page of the list depends on, from one query: versions of its rows, and how many are newer."""
        page = self._page().annotate(newer=self._newer_counted()).values_list("pk", "version", "newer")[:PAGE]
        rows = list(page)
        newer = min(max((row[2] or 0 for row in rows), default=0), NEWER_CAP)
        return encoding.fingerprint([f"{pk} {version}" for pk, version, _ in rows])[:12], newer

    def _newer_counted(self) -> Subquery | Value:
        if not self.counts_newer:
            return Value(0)
        same = self._newer_runs().order_by().annotate(same=Value(1)).values("same")
        return Subquery(same.annotate(n=Count("pk")).values("n"))


def _status(name: str) -> Q:
    if not name:
        return Q()
    if name == "needs_you":
        return Q(status=Status.WAITING, waiting_for__in=NEEDS_A_PERSON)
    if name == "waiting":
        return Q(status=Status.WAITING) & ~Q(waiting_for__in=NEEDS_A_PERSON)
    return Q(status=name)


def _id_prefix(text: str) -> Q:
    """Runs whose id begins with `text`: a range, because a UUID is no text on PostgreSQL."""
    digits = text.lower().replace("-", "")
    if not 4 <= len(digits) <= 32 or set(digits) - set(string.hexdigits):
        return Q(pk__in=[])
    return Q(pk__gte=uuid.UUID(digits.ljust(32, "0")), pk__lte=uuid.UUID(digits.ljust(32, "f")))


def _created(run_id: uuid.UUID) -> Subquery:
    """A run's time as the database keeps it: SQLite compares times as text, and a round trip adds zeros to it."""
    return Subquery(Run.objects.filter(pk=run_id).values("created_at")[:1])


def _newer_than(run_id: uuid.UUID | None) -> Q:
    return Q(created_at__gt=_created(run_id)) | Q(created_at=_created(run_id), pk__gt=run_id) if run_id else Q()


def _older_than(run_id: uuid.UUID) -> Q:
    return Q(created_at__lt=_created(run_id)) | Q(created_at=_created(run_id), pk__lt=run_id)


def _id(text: str | None) -> uuid.UUID | None:
    try:
        return uuid.UUID(text) if text else None
    except ValueError:
        return None
