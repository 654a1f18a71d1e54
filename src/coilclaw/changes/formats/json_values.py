"""JSON as deliveries are written in: strict, bounded, and with the line of every container.

Nesting is bounded, and the reader looks at every character a fixed number of times, so that a
broken text costs no more than a good one.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import Final, NoReturn, TypeAlias

from coilclaw.kernel import MAX_INTEGER, quote_text

MAX_DEPTH: Final = 64
MAX_VALUES: Final = 1_000_000
MAX_NUMBER_CHARS: Final = 40

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+')
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_WORD: Final = re.compile(r"-?[A-Za-z]{1,20}")
_WORDS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}
_NOT_NUMBERS: Final = frozenset({"NaN", "Infinity", "-Infinity"})


@dataclass(frozen=True, slots=True)
class JsonObject:
    """An object and the line it begins on."""

    members: dict[str, JsonValue]
    line: int


@dataclass(frozen=True, slots=True)
class JsonArray:
    """A list and the line it begins on."""

    items: tuple[JsonValue, ...]
    line: int


JsonValue: TypeAlias = str | int | float | bool | JsonObject | JsonArray | None


_KINDS: Final[dict[type, str]] = {
    type(None): "null",
    bool: "a boolean",
    str: "a string",
    JsonObject: "an object",
    JsonArray: "a list",
}


@dataclass(frozen=True, slots=True)
class JsonDocument:
    """One value, and where in the text it ends."""

    value: JsonValue
    end: int
    line: int
    """The line the value ends on."""
    count: int = field(default=0, compare=False)
    """How many values were read, with all that it holds."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """Why a text is not a value, and the place where that shows."""

    reason: str
    """What follows "the JSON" in a sentence."""
    rule: str
    at: int
    line: int
    count: int = field(default=0, compare=False)
    """How many values were read before."""


def read(text: str, at: int, line: int) -> JsonDocument | Flaw:
    """Read the value that begins at an offset (and line); what follows it is not looked at."""
    reader = _Reader(text, at, line)
    try:
        value = reader.value()
    except _Stop as stopped:
        return stopped.flaw
    return JsonDocument(value, reader.at, reader.line, reader.count)


def name_kind(value: JsonValue) -> str:
    """Name the type of a value in a message."""
    return _KINDS.get(type(value), "a number")


class _Stop(Exception):
    """Ends the reader at a flaw; it never leaves this module."""

    def __init__(self, flaw: Flaw) -> None:
        self.flaw = flaw


@dataclass(slots=True)
class _Reader:
    text: str
    at: int
    line: int
    count: int = 0

    def value(self, depth: int = 0) -> JsonValue:
        char = self._next()
        self.count += 1
        if self.count > MAX_VALUES:
            self._stop(f"holds more than {MAX_VALUES:,} values", "json.size")
        if char == '"':
            return self._string()
        if char not in {"{", "["}:
            return self._scalar(char)
        if depth >= MAX_DEPTH:
            self._stop(f"is nested more than {MAX_DEPTH} levels deep", "json.depth")
        line, closer = self.line, "}" if char == "{" else "]"
        members: dict[str, JsonValue] = {}
        items: list[JsonValue] = []
        self.at += 1
        ahead = self._next()
        while ahead != closer:
            if char == "{":
                key = self._key(members)
                members[key] = self.value(depth + 1)
            else:
                items.append(self.value(depth + 1))
            ahead = self._next()
            if ahead == closer:
                break
            if ahead != ",":
                self._stop(f"has {self._describe_char()} where ',' or '{closer}' is expected")
            self.at += 1
            ahead = self._next()
            if ahead == closer:
                self._stop(f"has a comma before '{closer}'")
        self.at += 1
        return JsonObject(members, line) if char == "{" else JsonArray(tuple(items), line)

    def _key(self, members: dict[str, JsonValue]) -> str:
        if self._next() != '"':
            self._stop(f"has {self._describe_char()} where a key in double quotes is expected")
        key = self._string()
        if key in members:
            self._stop(f"has the key {quote_text(key)} twice in one object", "json.duplicate")
        if self._next() != ":":
            self._stop(f"has {self._describe_char()} where ':' is expected")
        self.at += 1
        return key

    def _string(self) -> str:
        start = self.at
        body = _STRING.match(self.text, start)
        assert body is not None
        self.at = body.end()
        end = self.text[self.at : self.at + 1]
        if end == "":
            self.at = start
            self._stop("ends within a string")
        if end == "\n":
            self._stop("has a line break within a string (it is written \\n)")
        if end != '"':
            self._stop("has a control character or a wrong escape within a string")
        value: str = json.loads(self.text[start : self.at + 1])
        if _SURROGATE.search(value):
            self.at = start
            self._stop("has half a surrogate pair within a string", "json.surrogate")
        self.at += 1
        return value

    def _scalar(self, char: str) -> int | float | bool | None:
        word = _WORD.match(self.text, self.at)
        if word and word[0] in _WORDS:
            self.at = word.end()
            return _WORDS[word[0]]
        if word and word[0] in _NOT_NUMBERS:
            self._stop(f"has {word[0]}, which is not valid JSON", "json.number")
        number = _NUMBER.match(self.text, self.at, self.at + MAX_NUMBER_CHARS + 1)
        if char == "" or number is None:
            self._stop(f"has {self._describe_char()} where a value is expected")
        if number.end() - self.at > MAX_NUMBER_CHARS:
            self._stop(f"has a number of more than {MAX_NUMBER_CHARS} characters", "json.number")
        is_integer = number[1] is None and number[2] is None
        value = int(number[0]) if is_integer else float(number[0])
        if is_integer and abs(value) > MAX_INTEGER:
            self._stop("has an integer beyond ±(2^53−1)", "json.number")
        if math.isinf(value):
            self._stop("has a number that is too large", "json.number")
        self.at = number.end()
        return value

    def _next(self) -> str:
        """Pass over blanks; return the character after them, or nothing at the end."""
        match = _SPACE.match(self.text, self.at)
        assert match is not None
        if match.end() > self.at:
            self.line += self.text.count("\n", self.at, match.end())
            self.at = match.end()
        return self.text[self.at : self.at + 1]

    def _describe_char(self) -> str:
        char = self.text[self.at : self.at + 1]
        return quote_text(char) if char else "its end"

    def _stop(self, reason: str, rule: str = "json.syntax") -> NoReturn:
        raise _Stop(Flaw(reason, rule, self.at, self.line, self.count))
