"""Canonical JSON: every allowed record gives the bytes of RFC 8785, and nothing else is allowed."""

from __future__ import annotations

import json
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from coilclaw.kernel.canonical_json import encode_record
from coilclaw.kernel.errors import UsageError
from coilclaw.kernel.strict_json import MAX_INTEGER

KEYS = st.text(st.characters(max_codepoint=0x7F), max_size=8)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-MAX_INTEGER, MAX_INTEGER)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
RECORDS = st.dictionaries(KEYS, VALUES, max_size=6)

BAD_LEAVES = (
    st.floats()
    | st.binary(max_size=3)
    | st.integers(min_value=MAX_INTEGER + 1)
    | st.integers(max_value=-MAX_INTEGER - 1)
    | st.text(st.characters(categories=["Cs"]), min_size=1, max_size=3)
    | st.complex_numbers()
    | st.sets(st.integers(), max_size=2)
)
BAD_KEYS = st.text(st.characters(min_codepoint=0x80), min_size=1, max_size=4) | st.integers()


@settings(deadline=None)
@given(RECORDS)
def test_every_allowed_record_gives_the_bytes_of_the_standard(record: dict[str, Any]) -> None:
    assert encode_record(record) == rfc8785.dumps(record)


@settings(deadline=None)
@given(RECORDS)
def test_every_allowed_record_reads_back_as_itself(record: dict[str, Any]) -> None:
    assert json.loads(encode_record(record)) == record


@settings(deadline=None)
@given(RECORDS, st.randoms(use_true_random=False))
def test_the_order_of_the_keys_does_not_matter(record: dict[str, Any], chance: Any) -> None:
    items = list(record.items())
    chance.shuffle(items)
    assert encode_record(dict(items)) == encode_record(record)


@settings(deadline=None)
@given(RECORDS, KEYS, BAD_LEAVES)
def test_a_bad_value_is_refused_wherever_it_hides(
    record: dict[str, Any], key: str, bad: object
) -> None:
    for value in (bad, [record, bad], {"in": {"deep": bad}}):
        with pytest.raises(UsageError):
            encode_record({**record, key: value})


@settings(deadline=None)
@given(RECORDS, BAD_KEYS)
def test_a_bad_key_is_refused_wherever_it_hides(record: dict[str, Any], bad: Any) -> None:
    for nested in ({bad: 1}, {"a": {bad: 1}}, {"a": [{bad: 1}]}):
        with pytest.raises(UsageError):
            encode_record({**record, **nested})
