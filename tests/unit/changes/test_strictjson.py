"""Strict JSON: what it refuses, where it says so, and that nothing exhausts it."""

from __future__ import annotations

import pytest

from coilclaw.changes.formats import json_values
from coilclaw.changes.formats.json_values import (
    Flaw,
    JsonArray,
    JsonDocument,
    JsonObject,
    JsonValue,
)


def flaw(text: str) -> Flaw:
    found = json_values.read(text, 0, 1)
    assert isinstance(found, Flaw)
    return found


@pytest.mark.parametrize(
    ("text", "rule", "at", "line"),
    [
        ('{"a": 1, "a": 2}', "json.duplicate", 12, 1),
        ('{"a": {"b": 1, "\\u0062": 2}}', "json.duplicate", 23, 1),
        ('{"a": NaN}', "json.number", 6, 1),
        ('{"a": Infinity}', "json.number", 6, 1),
        ('{"a": -Infinity}', "json.number", 6, 1),
        ('{"a": 9007199254740992}', "json.number", 6, 1),
        ('{"a": -9007199254740992}', "json.number", 6, 1),
        ('{"a": 1e999}', "json.number", 6, 1),
        ('{"a": 0.' + "1" * 40 + "}", "json.number", 6, 1),
        ('{"a": ' + "9" * 100_000 + "}", "json.number", 6, 1),
        ('{"a": "\\ud800"}', "json.surrogate", 6, 1),
        ('{"a": "\\udc00\\ud800"}', "json.surrogate", 6, 1),
        ('{"a": "x\ny"}', "json.syntax", 8, 1),
        ('{"a": "x\ty"}', "json.syntax", 8, 1),
        ('{"a": "\\x"}', "json.syntax", 7, 1),
        ('{"a": "\\"}', "json.syntax", 6, 1),
        ('{"a": 1,}', "json.syntax", 8, 1),
        ('{"a": [1,\n]}', "json.syntax", 10, 2),
        ("{'a': 1}", "json.syntax", 1, 1),
        ("{a: 1}", "json.syntax", 1, 1),
        ('{"a" 1}', "json.syntax", 5, 1),
        ('{\n"a": 01}', "json.syntax", 8, 2),
        ('{"a": .5}', "json.syntax", 6, 1),
        ('{"a": True}', "json.syntax", 6, 1),
        ('{"a": 1 // one\n}', "json.syntax", 8, 1),
        ('{"a": [1 2]}', "json.syntax", 9, 1),
        ('{"a": [1}', "json.syntax", 8, 1),
        ('{"a":\n', "json.syntax", 6, 2),
        ("{", "json.syntax", 1, 1),
        ("", "json.syntax", 0, 1),
    ],
)
def test_flaws_are_named_and_placed(text: str, rule: str, at: int, line: int) -> None:
    found = flaw(text)
    assert (found.rule, found.at, found.line) == (rule, at, line)


def test_nesting_stops_at_the_bound() -> None:
    deepest = "[" * json_values.MAX_DEPTH + "]" * json_values.MAX_DEPTH
    assert isinstance(json_values.read(deepest, 0, 1), JsonDocument)
    found = flaw("[" + deepest + "]")
    assert (found.rule, found.at) == ("json.depth", json_values.MAX_DEPTH)
    assert flaw('{"a":' * 1_000_000).rule == "json.depth"


def test_a_reason_completes_a_sentence_about_the_json() -> None:
    assert flaw('{"a": 1, "a": 2}').reason == "has the key 'a' twice in one object"
    assert flaw("[1,").reason == "has its end where a value is expected"


def test_the_number_of_values_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_values, "MAX_VALUES", 3)
    assert isinstance(json_values.read("[1,2]", 0, 1), JsonDocument)
    assert flaw("[1,2,3]").rule == "json.size"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"a\\n\\"\\\\\\/\\u00e9\\ud83d\\ude00"', 'a\n"\\/é😀'),
        ('"\\\\"', "\\"),
        ('"é"', "é"),
        ("9007199254740991", 9007199254740991),
        ("-0", 0),
        ("1.5e3", 1500.0),
        ("true", True),
        ("false", False),
        ("null", None),
        ("[]", JsonArray((), 1)),
        (" {}", JsonObject({}, 1)),
        (
            '{\n "a": [1, {"b": "c"}],\r\n "d": {}}',
            JsonObject(
                {
                    "a": JsonArray((1, JsonObject({"b": "c"}, 2)), 2),
                    "d": JsonObject({}, 3),
                },
                1,
            ),
        ),
    ],
)
def test_values_and_their_lines(text: str, value: JsonValue) -> None:
    found = json_values.read(text, 0, 1)
    assert isinstance(found, JsonDocument)
    assert found.value == value
    assert found.end == len(text)


def test_reading_starts_anywhere_and_stops_after_the_value() -> None:
    assert json_values.read('xx{"a":\n1} tail', 2, 7) == JsonDocument(
        JsonObject({"a": 1}, 7), 10, 8
    )


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (None, "null"),
        (True, "a boolean"),
        (1, "a number"),
        (1.5, "a number"),
        ("", "a string"),
        (JsonArray((), 1), "a list"),
        (JsonObject({}, 1), "an object"),
    ],
)
def test_kinds_have_names(value: JsonValue, name: str) -> None:
    assert json_values.name_kind(value) == name
