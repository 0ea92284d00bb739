"""The axis of the waterfall: in order, within the width, with long idle times drawn short."""

from datetime import UTC, datetime
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from agentruns.web.axis import Axis, Span, merged

ORIGIN = datetime(2026, 11, 30, tzinfo=UTC)


def axis(length: float, *busy: tuple[float, float], shrink: bool = True) -> Axis:
    return Axis(ORIGIN, length, [Span(*one) for one in busy], shrink)


def test_a_week_between_two_minutes_takes_little_room():
    week = 7 * 86_400.0
    drawn = axis(week + 120, (0, 60), (week + 60, week + 120))
    assert drawn.percent(week + 60) - drawn.percent(60) < 5
    assert drawn.percent(60) - drawn.percent(0) > 40
    true = axis(week + 120, (0, 60), (week + 60, week + 120), shrink=False)
    assert true.percent(week + 60) - true.percent(60) > 95


def test_a_short_wait_is_drawn_as_it_was():
    assert not axis(20, (0, 9), (11, 20)).is_shrunk


def test_ticks_are_round_times_that_do_not_touch():
    ticks = axis(2760, (0, 2760)).ticks
    assert [tick.label for tick in ticks] == ["0s", "10m", "20m", "30m", "40m"]


def test_overlapping_times_are_one():
    assert merged([Span(5, 7), Span(0, 3), Span(2, 4)]) == [Span(0, 4), Span(5, 7)]


times = st.floats(0, 1e6, allow_nan=False)


@given(times, st.lists(st.tuples(times, times).map(sorted).map(tuple), max_size=8), st.booleans())
def test_time_never_runs_backwards_or_out_of_the_picture(length: float, busy: list, shrink: bool):
    drawn = axis(length, *busy, shrink=shrink)
    moments = sorted({0.0, length, *(end for span in busy for end in span)})
    places = [drawn.percent(moment) for moment in moments]
    assert all(0 <= place <= 100 for place in places)
    assert all(before <= after + 1e-6 for before, after in pairwise(places))
    assert len(drawn.ticks) <= 12
