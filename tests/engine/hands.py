"""What engine tests share: verbs done by hand, many threads at once, and a database connection that fails on demand."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agentruns.models import Attempt, Call, Run, Step, Wait

WRITES = ("INSERT", "UPDATE", "DELETE")


def step_of(run: Run, path: str, value: Any = "word", kind: str = "step") -> Step:
    return Step(
        run=run, path=path, top=path.split("/")[0], kind=kind, output=value, labels=["trusted"], reads=[],
        started_at=timezone.now(), finished_at=timezone.now(),
    )  # fmt: skip


def attempt_of(run: Run, outcome: str = "finished", **more: Any) -> Attempt:
    return Attempt(
        run=run, path=run.at_path, number=run.at_number, worker=run.worker, ended_at=timezone.now(), outcome=outcome,
        **more,
    )  # fmt: skip


def call_of(run: Run, path: str) -> Call:
    """Not written yet."""
    return Call(
        path=path, top=path.split("/")[0], model="demo", provider="http://demo/v1", key=f"{run.pk}:{path}",
        fingerprint="0" * 64, request={"input": "?"}, reserved=Decimal("0.01"), attempt=run.at_number,
    )  # fmt: skip


def call_in_flight(run: Run, path: str) -> Call:
    call = run.intend(call_of(run, path))
    Call.objects.filter(pk=call.pk).update(state="submitted", response_id=f"resp_{call.pk}")
    return Call.objects.get(pk=call.pk)


def wait_of(kind: str, path: str, seconds: float | None = None) -> Wait:
    wait = Wait(path=path, kind=kind)
    wait.seconds = seconds
    return wait


def at_once(count: int, do: Callable[[int], Any]) -> list[Any]:
    """What `do(0)`, `do(1)`, … gave, each in a thread with a connection of its own, all let go at the same moment."""
    gate, results = threading.Barrier(count), [None] * count

    def one(number: int) -> None:
        try:
            connection.ensure_connection()
            gate.wait(timeout=20)
            results[number] = do(number)
        except BaseException as error:
            results[number] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    return results


class Commits:
    """How many commits this thread's connection has made in a `with` block: of transactions, and of lone writes."""

    count = 0

    def __enter__(self) -> "Commits":
        self.capture = CaptureQueriesContext(connection)
        self.capture.__enter__()
        return self

    def __exit__(self, *trouble: Any) -> None:
        self.capture.__exit__(*trouble)
        inside = False
        for query in self.capture.captured_queries:
            word = query["sql"].lstrip().split(" ")[0].upper()
            if word.startswith("BEGIN"):
                inside = True
            elif word.startswith("ROLLBACK"):
                inside = False
            elif word.startswith("COMMIT"):
                inside, self.count = False, self.count + 1
            elif word in WRITES and not inside:
                self.count += 1


class Line:
    """This thread's line to the database: which commits it breaks at, counted from 1."""

    def __init__(self) -> None:
        self.commits = 0
        self.lost: set[int] = set()  # done by the server; its answer does not arrive
        self.refused: set[int] = set()  # not done


def this_line(monkeypatch: pytest.MonkeyPatch) -> Line:
    line, commit, mine = Line(), BaseDatabaseWrapper._commit, threading.current_thread()

    def breaking(self: BaseDatabaseWrapper) -> None:
        if threading.current_thread() is not mine:
            return commit(self)
        line.commits += 1
        if line.commits in line.refused:
            raise OperationalError("the connection was closed before COMMIT")
        commit(self)
        if line.commits in line.lost:
            raise OperationalError("the connection was closed before COMMIT was answered")
        return None

    monkeypatch.setattr(BaseDatabaseWrapper, "_commit", breaking)
    return line


@contextmanager
def failing(error: Exception, on: str) -> Iterator[None]:
    """Statements of this thread that contain `on` fail."""

    def wrap(execute: Any, sql: str, *rest: Any) -> Any:
        if on in sql:
            raise error
        return execute(sql, *rest)

    with connection.execute_wrapper(wrap):
        yield
