"""Reading never guesses and never crashes."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from coilclaw.kernel.errors import UsageError
from coilclaw.runs.contracts import task_contract
from tests.support.scale import scaled
from tests.support.schemavalues import JSON

EXAMPLES = scaled(full=2000, default=200)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.dictionaries(st.text(max_size=8), JSON, max_size=5), st.booleans())
def test_what_json_writes_is_read_as_it_was(value: dict[str, Any], ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=1)
    assert task_contract.parse_document(text.encode()) == value


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.binary(max_size=64) | st.text('{}[]",:\\u0041 19-.eENaN', max_size=64).map(str.encode))
def test_any_bytes_are_read_or_refused_with_a_reason(data: bytes) -> None:
    try:
        value = task_contract.parse_document(data)
    except UsageError:
        return
    assert json.loads(data) == value


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), min_size=1, max_size=5))
def test_a_key_twice_is_never_read(pairs: list[tuple[str, int]]) -> None:
    text = "{" + ",".join(f'"{name}": {value}' for name, value in pairs) + "}"
    twice = len({name for name, _ in pairs}) < len(pairs)
    try:
        task_contract.parse_document(text.encode())
    except UsageError:
        assert twice
    else:
        assert not twice
