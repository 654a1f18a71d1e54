from __future__ import annotations

import json

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from coilclaw.kernel import canonical_json
from coilclaw.kernel.errors import UsageError
from coilclaw.kernel.messages import Json

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_the_text_is_what_another_implementation_of_rfc_8785_gives(value: Json) -> None:
    assert canonical_json.render_json(value).encode() == rfc8785.dumps(value)


@given(VALUES)
def test_the_text_means_the_value(value: Json) -> None:
    # A float without a fraction is written like an integer, and read as one.
    assert json.loads(canonical_json.render_json(value), parse_int=float) == value


def test_two_large_integers_stay_two() -> None:
    assert canonical_json.render_json([2**53, 2**53 + 1]) == "[9007199254740992,9007199254740993]"


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (float("nan"), "canonical.number"),
        (float("-inf"), "canonical.number"),
        ("\ud800", "canonical.text"),
        ({"\udfff": 1}, "canonical.text"),
    ],
)
def test_what_json_has_not_is_refused(value: Json, rule: str) -> None:
    with pytest.raises(UsageError) as caught:
        canonical_json.render_json(value)
    assert caught.value.rule == rule


def test_nesting_is_bounded() -> None:
    value: Json = 1
    for _ in range(canonical_json.MAX_FREE_DEPTH - 1):
        value = [value]
    assert canonical_json.render_json(value).startswith("[[")
    with pytest.raises(UsageError) as caught:
        canonical_json.render_json([value])
    assert caught.value.rule == "canonical.depth"
