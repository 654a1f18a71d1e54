"""Contracts and policies are read strictly: one meaning, bounded, or not at all."""

from __future__ import annotations

import pytest

from coilclaw.kernel.errors import UsageError
from coilclaw.runs.contracts import task_contract


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is not valid JSON"),
        (b"{", "is not valid JSON"),
        (b"[]", "not a JSON object"),
        (b"null", "not a JSON object"),
        (b'"text"', "not a JSON object"),
        (b'{"a": 1, "a": 1}', "'a' twice"),
        (b'{"x": {"a": 1, "\\u0061": 2}}', "'a' twice"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "Infinity"),
        (b'{"a": 1e999}', "too large"),
        (b'{"a": 9007199254740992}', "beyond"),
        (b'{"a": ' + b"9" * 5000 + b"}", "beyond"),
        (b'{"a": "\\ud800"}', "surrogate"),
        (b'{"a": "\xff"}', "not valid UTF-8 at byte 7"),
        ('{"a": 1}'.encode("utf-16"), "not valid UTF-8"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b'{"a": 1} {}', "is not valid JSON"),
        (b"{'a': 1}", "is not valid JSON"),
        (b'{"a": 1,}', "is not valid JSON"),
        (b'{"a": "\n"}', "is not valid JSON"),
        (b'{"a": ' + b"[" * 64 + b"]" * 64 + b"}", "nested"),
        (b"[" * 200_000, "nested"),
        (b'{"a":' * 100_000, "nested"),
        (b" " * (task_contract.MAX_BYTES + 1), "bytes"),
    ],
    ids=range(24),
)
def test_what_is_no_plain_json_object_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as caught:
        task_contract.parse_document(data)
    assert caught.value.rule == "contract.json"


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b" {} \n", {}),
        ('{"ä": ["\\"[[[{{{", true, null]}'.encode(), {"ä": ['"[[[{{{', True, None]}),
        (b'{"a": 9007199254740991, "b": -1.5e3}', {"a": 2**53 - 1, "b": -1500.0}),
        (b'{"a": {"x": 1}, "b": {"x": 2}}', {"a": {"x": 1}, "b": {"x": 2}}),
        (b'{"a": "\\ud83d\\ude00"}', {"a": "\U0001f600"}),
    ],
    ids=range(5),
)
def test_a_plain_object_is_read(data: bytes, value: object) -> None:
    assert task_contract.parse_document(data) == value


def test_the_bounds_are_reached_and_not_passed() -> None:
    deep = b'{"a": ' + b"[" * 63 + b"]" * 63 + b"}"
    assert task_contract.parse_document(deep)
    large = b'{"a": "' + b"x" * (task_contract.MAX_BYTES - 9) + b'"}'
    assert len(large) == task_contract.MAX_BYTES
    assert task_contract.parse_document(large)
