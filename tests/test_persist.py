"""A write whose answer was lost is looked up, then repeated, while the claim lives."""

from collections.abc import Iterator

import pytest
from django.db import DataError, IntegrityError, InterfaceError, OperationalError

from agentruns.errors import LeaseLost
from agentruns.persist import persist


class Claim:
    """Living for so many looks."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def living(self) -> None:
        self.looks -= 1
        if self.looks < 0:
            raise LeaseLost("the lease is over")


class Database:
    """What each write and each look meets, one after the other: an exception, or an answer."""

    def __init__(self, *, writes: list, looks: list) -> None:
        self.writes, self.looks = iter(writes), iter(looks)
        self.written = 0

    def write(self) -> None:
        self.written += 1
        self.meet(self.writes)

    def landed(self) -> bool:
        return self.meet(self.looks)

    def meet(self, what: Iterator) -> bool:
        met = next(what)
        if isinstance(met, BaseException):
            raise met
        return met


def done(looks_of_claim: int = 3, **met: list) -> int:
    """How often was written until it was done."""
    database = Database(**{"writes": [], "looks": []} | met)
    persist(Claim(looks_of_claim), database.write, database.landed)
    return database.written


gone = OperationalError("the server closed the connection")


def test_a_write_that_is_answered_is_not_looked_up():
    assert done(writes=[None]) == 1


@pytest.mark.parametrize("error", [gone, InterfaceError("the connection is closed")])
def test_a_write_that_landed_without_an_answer_is_not_repeated(error):
    assert done(writes=[error], looks=[True]) == 1


def test_a_write_that_did_not_land_is_repeated():
    assert done(writes=[gone, gone, None], looks=[False, False]) == 3


def test_a_look_that_fails_is_repeated_and_nothing_is_written_meanwhile():
    assert done(writes=[gone], looks=[gone, gone, True]) == 1


@pytest.mark.parametrize("conflict", [IntegrityError("it is there"), LeaseLost("the claim is over")])
def test_a_commit_that_the_server_finished_after_we_had_looked_is_ours(conflict):
    assert done(writes=[gone, conflict], looks=[False, True]) == 2


@pytest.mark.parametrize("conflict", [IntegrityError("it is there"), LeaseLost("the claim is over")])
def test_a_conflict_with_somebody_else_is_raised(conflict):
    with pytest.raises(type(conflict)):
        done(writes=[conflict])
    with pytest.raises(type(conflict)):
        done(writes=[gone, conflict], looks=[False, False])


def test_an_error_that_no_repetition_mends_is_raised_at_once():
    with pytest.raises(DataError):
        done(writes=[DataError("too long")])


def test_it_gives_up_when_the_lease_may_have_run_out():
    with pytest.raises(LeaseLost, match="the lease is over"):
        done(looks_of_claim=1, writes=[gone, gone, None], looks=[False, False])
