"""Strict JSON: one meaning or a fault that says why."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coilclaw.kernel.strict_json import JsonFault, measure_depth, read_json, read_json_object

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@given(values)
def test_whatever_json_writes_is_read_back(value: object) -> None:
    text = json.dumps(value)
    assert read_json(text, max_depth=1000) == value
    assert read_json(text.encode(), max_depth=1000) == value


@given(st.text() | st.binary())
def test_any_input_is_a_value_or_a_fault(data: str | bytes) -> None:
    with suppress(JsonFault):
        assert json.dumps(read_json(data), allow_nan=False)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"\xff", "is not valid UTF-8 at byte 0"),
        ("", "is not valid JSON: Expecting value at line 1, column 1"),
        ("{}\n{}", "is not valid JSON: Extra data at line 2, column 1"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "has the key 'c' twice in one object"),
        ('{"a": NaN}', "has NaN, which is not valid JSON"),
        ("[-Infinity]", "has -Infinity, which is not valid JSON"),
        ("1e999", "has a number that is too large"),
        ("[" * 65 + "]" * 65, "is nested more than 64 levels deep"),
        ("[" * 100_000, "is nested more than 64 levels deep"),
    ],
)
def test_a_text_with_no_or_two_meanings_is_refused(text: str | bytes, reason: str) -> None:
    with pytest.raises(JsonFault) as fault:
        read_json(text)
    assert str(fault.value) == reason


def test_the_neighbours_of_what_is_refused_are_read() -> None:
    assert read_json("[" * 64 + "]" * 64) is not None
    assert read_json(json.dumps(["[" * 100, "\\{" * 100])) == ["[" * 100, "\\{" * 100]
    assert read_json("[" + ",".join(["{}"] * 100) + "]") == [{}] * 100
    assert read_json('[{"a": 1}, {"a": 2}]') == [{"a": 1}, {"a": 2}]
    assert read_json("1e308") == 1e308


def test_integers_are_bounded_where_the_caller_says_so() -> None:
    assert read_json("9007199254740992") == 2**53
    assert read_json("9007199254740991", max_integer=2**53 - 1) == 2**53 - 1
    for text in ("9007199254740992", "-9007199254740992", "1" * 10_000):
        with pytest.raises(JsonFault, match="has an integer beyond"):
            read_json(text, max_integer=2**53 - 1)
    with pytest.raises(JsonFault, match="number that is too large"):
        read_json("1" * 10_000)


def test_an_object_is_an_object() -> None:
    assert read_json_object('{"a": []}') == {"a": []}
    with pytest.raises(JsonFault, match="is not a JSON object"):
        read_json_object("[]")


def test_depth_is_measured_without_recursion() -> None:
    deep: object = 1
    for _ in range(100_000):
        deep = [deep]
    assert (measure_depth(1), measure_depth([]), measure_depth({"a": [1]})) == (0, 1, 2)
    assert measure_depth(deep) == 100_000
