"""What JSON of ours keeps, and what it refuses: for any value, it comes back equal, or is refused."""

import json
import math
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from agentruns.encoding import DEPTH, OUTPUT_BYTES, NotStorable, canonical, dumps, fingerprint, loads

texts = some.text(some.characters(exclude_categories=()), max_size=20)
plain = some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False) | texts
values = some.recursive(plain, lambda inside: some.lists(inside) | some.dictionaries(texts, inside), max_leaves=20)


@given(values)
@example("\ud83d\ude00")
@example({"\ud83d\ude00": 1})
def test_any_json_comes_back_equal_or_is_refused(value):
    try:
        text = dumps(value, exact=True)
    except NotStorable as refused:
        assert "surrogates" in str(refused)
        return
    assert text.isascii() and "\0" not in text
    assert loads(text) == value


@given(values)
def test_without_exact_nothing_that_is_json_is_refused(value):
    """For what is kept for people to read: an error message must not become an error."""
    assert canonical(loads(dumps(value))) == canonical(value)


@given(some.dictionaries(texts, plain, min_size=2))
def test_the_order_of_keys_changes_no_fingerprint(value):
    assert fingerprint(dict(reversed(value.items()))) == fingerprint(value)


def test_not_a_number_comes_back_as_that():
    assert math.isnan(loads(dumps(math.nan)))


@pytest.mark.parametrize("value", [(1,), [(1,)], {"a": (1,)}, {1: 2}, {None: 1}, {1}, b"x", object(), Decimal(1), 1j])
def test_what_json_would_change_or_cannot_write_is_refused(value):
    with pytest.raises(NotStorable):
        dumps(value)


def nested(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


def test_a_hundred_levels_are_kept_and_one_more_is_refused():
    assert loads(dumps(nested(DEPTH - 1))) == nested(DEPTH - 1)
    with pytest.raises(NotStorable, match="nested deeper than 100 levels"):
        dumps(nested(DEPTH))


def test_ten_megabytes_are_kept_and_one_byte_more_is_refused():
    assert len(dumps("x" * (OUTPUT_BYTES - 2))) == OUTPUT_BYTES
    with pytest.raises(NotStorable, match="10,485,761 bytes of JSON are over the limit"):
        dumps("x" * (OUTPUT_BYTES - 1))


def test_a_value_that_holds_itself_is_refused_before_it_fills_the_memory():
    value: list = []
    value += [value, value]
    with pytest.raises(NotStorable):
        dumps(value)


def test_a_fingerprint_is_the_sha_256_of_the_canonical_text():
    assert canonical({"b": 1, "a": ["é"]}) == '{"a":["\\u00e9"],"b":1}'
    assert len(fingerprint({})) == 64
    assert fingerprint({"a": 1}) != fingerprint({"a": "1"})


def test_what_is_written_is_plain_json():
    assert json.loads(dumps({"a": [1, 2.5, None, True, "é\0"]})) == {"a": [1, 2.5, None, True, "é\0"]}
