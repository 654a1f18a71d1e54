"""Canonical JSON: what a record may not hold, and the exact bytes of what it may."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Any

import pytest
import rfc8785

from coilclaw.kernel.canonical_json import MAX_DEPTH, digest_bytes, encode_record
from coilclaw.kernel.errors import UsageError
from coilclaw.kernel.strict_json import MAX_INTEGER


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 1


def _nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


def _endless() -> list[object]:
    value: list[object] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (1.0, "canonical.type"),
        (float("nan"), "canonical.type"),
        (float("inf"), "canonical.type"),
        (-0.0, "canonical.type"),
        (b"bytes", "canonical.type"),
        (bytearray(b"x"), "canonical.type"),
        ({1, 2}, "canonical.type"),
        (range(3), "canonical.type"),
        (Colour.RED, "canonical.type"),
        (Level.HIGH, "canonical.type"),
        (MappingProxyType({}), "canonical.type"),
        (MAX_INTEGER + 1, "canonical.integer"),
        (-MAX_INTEGER - 1, "canonical.integer"),
        (10**30, "canonical.integer"),
        ("\ud800", "canonical.text"),
        ("a\udfffb", "canonical.text"),
        ({"ä": 1}, "canonical.key"),
        ({1: "x"}, "canonical.key"),
        ({None: "x"}, "canonical.key"),
        ({Colour.RED: 1}, "canonical.key"),
        (_nested(MAX_DEPTH), "canonical.depth"),
        (_endless(), "canonical.depth"),
    ],
    ids=repr,
)
def test_a_value_without_a_canonical_form_is_refused(value: object, rule: str) -> None:
    for record in ({"a": value}, {"a": [value]}, {"a": {"b": value}}):
        with pytest.raises(UsageError) as caught:
            encode_record(record)
        assert caught.value.rule == rule


@pytest.mark.parametrize("key", [1, None, ("a",), "ä", "\ud800", "\u2028", Colour.RED])
def test_a_key_that_is_not_ascii_text_is_refused(key: Any) -> None:
    with pytest.raises(UsageError, match="is not ASCII") as caught:
        encode_record({key: 1})
    assert caught.value.rule == "canonical.key"


def test_the_place_of_a_refused_value_is_named() -> None:
    with pytest.raises(UsageError, match=r"value at a\[1\]\.b has type float"):
        encode_record({"a": [0, {"b": 0.5}]})
    with pytest.raises(UsageError, match=r"integer at a\.b\[0\] is beyond"):
        encode_record({"a": {"b": [2**53]}})


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({}, b"{}"),
        ({"b": 1, "a": 2, "B": 3, "": 4}, b'{"":4,"B":3,"a":2,"b":1}'),
        ({"a": None, "b": True, "c": False}, b'{"a":null,"b":true,"c":false}'),
        ({"a": [1, [], {}, ()]}, b'{"a":[1,[],{},[]]}'),
        ({"a": {"z": 1, "y": {"x": 2, "w": 3}}}, b'{"a":{"y":{"w":3,"x":2},"z":1}}'),
        ({"a": 0, "b": -5}, b'{"a":0,"b":-5}'),
        (
            {"a": MAX_INTEGER, "b": -MAX_INTEGER},
            b'{"a":9007199254740991,"b":-9007199254740991}',
        ),
        ({"a": '"\\/\b\f\n\r\t'}, b'{"a":"\\"\\\\/\\b\\f\\n\\r\\t"}'),
        ({"a": "\x00\x1b\x1f\x7f"}, b'{"a":"\\u0000\\u001b\\u001f\x7f"}'),
        ({"a": "é\u2028\U0001f40d<>&"}, '{"a":"é\u2028\U0001f40d<>&"}'.encode()),
        ({'k"ey\n': 1}, b'{"k\\"ey\\n":1}'),
    ],
)
def test_the_bytes_are_those_of_rfc_8785(record: dict[str, Any], expected: bytes) -> None:
    assert encode_record(record) == expected == rfc8785.dumps(record)


def test_the_deepest_value_still_fits() -> None:
    record: dict[str, Any] = {"a": _nested(MAX_DEPTH - 1)}
    assert encode_record(record) == rfc8785.dumps(record)


def test_every_control_character_is_written_as_the_standard_says() -> None:
    record: dict[str, Any] = {"a": "".join(map(chr, range(0x100)))}
    assert encode_record(record) == rfc8785.dumps(record)


def test_any_mapping_is_taken_and_none_is_changed() -> None:
    record: Mapping[str, object] = MappingProxyType({"b": [1], "a": (2,)})
    assert encode_record(record) == b'{"a":[2],"b":[1]}'
    assert record == {"b": [1], "a": (2,)}


def test_a_digest_is_sha_256() -> None:
    assert digest_bytes(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
