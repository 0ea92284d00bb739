"""How amounts, times and events read."""

from decimal import Decimal

import pytest
from django.contrib.auth.models import User

from agentruns.models import Event
from agentruns.web.events import SENTENCES, sentence
from agentruns.web.words import duration, full_stop, last_line, tokens, usd, visible


@pytest.mark.parametrize(
    ("amount", "reads"),
    [
        ("0", "$0.00"), ("4.806", "$4.81"), ("1284", "$1,284.00"), ("0.5", "$0.50"), ("0.06", "$0.06"),
        ("0.0135", "$0.0135"), ("0.036", "$0.036"), ("0.0001", "$0.0001"), ("0.00004", "under $0.0001"),
    ],
)  # fmt: skip
def test_an_amount_keeps_the_digits_that_matter(amount: str, reads: str):
    assert usd(Decimal(amount)) == reads


@pytest.mark.parametrize(
    ("seconds", "reads"),
    [(0.84, "0.8s"), (54, "54s"), (342, "5m 42s"), (3900, "1h 05m"), (187_200, "2d 4h"), (-1, "0.0s")],
)
def test_a_duration_has_two_units_at_most(seconds: float, reads: str):
    assert duration(seconds) == reads


def test_tokens_are_rounded_to_what_a_person_compares():
    assert [tokens(n) for n in (0, 812, 4100, 5000, 697_400, 1_250_000)] == ["0", "812", "4.1k", "5k", "697k", "1.2M"]


def test_characters_that_hide_or_reorder_are_written_out():
    assert visible("a\u202eb\u200bc\ud800d\U000e0041") == "a⟨U+202E⟩b⟨U+200B⟩c⟨U+D800⟩d⟨U+E0041⟩"
    assert visible("tab\tand\nline") == "tab\tand\nline"


def test_an_error_is_told_by_its_last_line():
    assert last_line("Traceback…\n  File x\nValueError: no\n\n") == "ValueError: no"
    assert full_stop("no") == "no." and full_stop("no!") == "no!" and full_stop("") == ""


def test_every_kind_of_event_reads_as_a_sentence_even_with_nothing_known_about_it():
    for kind in [*SENTENCES, "a_kind_of_the_future"]:
        said = sentence(Event(kind=kind, path="research/part:x", about={}))
        assert said.lead and said.icon
        assert "{" not in said.lead + said.rest and "None" not in said.rest


def test_an_event_names_who_and_how_much():
    said = sentence(Event(kind="budget", by=User(username="ada"), about={"before": "5.00", "after": "8.5"}))
    assert said.lead + said.rest == "Budget changed by ada: $5.00 to $8.50."
    said = sentence(Event(kind="interrupted", path="draft", about={"cause": "crash", "worker": "worker-2"}))
    assert said.lead + said.rest == "Draft was cut off: its worker died (worker-2). What was finished before is kept."


def test_an_unknown_kind_keeps_what_it_knows():
    said = sentence(Event(kind="moved_on", about={"to": "there"}))
    assert said.lead + said.rest == "Moved on to there"
