"""JSON as deliveries are written in: strict, bounded, and with the line of every container.

The reader keeps its own stack, so that nesting cannot exhaust Python's, and looks at every
character a fixed number of times, so that a broken text costs no more than a good one.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import Final, NoReturn, TypeAlias

from coilclaw.domain.treepath import shown

MAX_DEPTH: Final = 64
MAX_VALUES: Final = 1_000_000
MAX_NUMBER_CHARS: Final = 40
MAX_INTEGER: Final = 2**53 - 1

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
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


@dataclass(frozen=True, slots=True)
class Document:
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


def read(text: str, at: int, line: int) -> Document | Flaw:
    """Read the value that begins at an offset (and line); what follows it is not looked at."""
    reader = _Reader(text, at, line)
    try:
        value = reader.value()
    except _Stop as stop:
        return stop.flaw
    return Document(value, reader.at, reader.line, reader.count)


def kind(value: JsonValue) -> str:
    """Name the type of a value in a message."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case JsonObject():
            return "an object"
        case JsonArray():
            return "a list"
        case _:
            return "a number"


class _Stop(Exception):
    """Carries a flaw out of the reader; it never leaves this module."""

    def __init__(self, flaw: Flaw) -> None:
        super().__init__(flaw.reason)
        self.flaw = flaw


class _Open:
    """A container that is still being read."""

    __slots__ = ("items", "key", "line", "members")

    def __init__(self, line: int, *, is_object: bool) -> None:
        self.line = line
        self.key = ""
        self.items: list[JsonValue] = []
        self.members: dict[str, JsonValue] | None = {} if is_object else None

    def add(self, value: JsonValue) -> None:
        if self.members is None:
            self.items.append(value)
        else:
            self.members[self.key] = value

    def closed(self) -> JsonObject | JsonArray:
        if self.members is None:
            return JsonArray(tuple(self.items), self.line)
        return JsonObject(self.members, self.line)


class _Reader:
    def __init__(self, text: str, at: int, line: int) -> None:
        self.text = text
        self.at = at
        self.line = line
        self._stack: list[_Open] = []
        self.count = 0

    def value(self) -> JsonValue:
        while True:
            value = self._begin()
            if isinstance(value, _Open):
                self._stack.append(value)
                continue
            while self._stack:
                top = self._stack[-1]
                top.add(value)
                if self._another(top):
                    break
                value = self._stack.pop().closed()
            else:
                return value

    def _begin(self) -> JsonValue | _Open:
        """Read a scalar or an empty container, or open one that holds something."""
        self._space()
        self.count += 1
        if self.count > MAX_VALUES:
            self._stop(f"holds more than {MAX_VALUES:,} values", "json.size")
        char = self._char()
        if char == '"':
            return self._string()
        if char not in {"{", "["}:
            return self._scalar(char)
        if len(self._stack) >= MAX_DEPTH:
            self._stop(f"is nested more than {MAX_DEPTH} levels deep", "json.depth")
        container = _Open(self.line, is_object=char == "{")
        self.at += 1
        self._space()
        if self._char() == ("}" if char == "{" else "]"):
            self.at += 1
            return container.closed()
        if char == "{":
            self._key(container)
        return container

    def _another(self, container: _Open) -> bool:
        """Pass the comma before another element, or the end of the container."""
        self._space()
        char = self._char()
        closer = "]" if container.members is None else "}"
        if char == closer:
            self.at += 1
            return False
        if char != ",":
            self._stop(f"has {self._found()} where ',' or '{closer}' is expected")
        self.at += 1
        self._space()
        if self._char() == closer:
            self._stop(f"has a comma before '{closer}'")
        if container.members is not None:
            self._key(container)
        return True

    def _key(self, container: _Open) -> None:
        if self._char() != '"':
            self._stop(f"has {self._found()} where a key in double quotes is expected")
        key = self._string()
        assert container.members is not None
        if key in container.members:
            self._stop(f"has the key {shown(key)} twice in one object", "json.duplicate")
        container.key = key
        self._space()
        if self._char() != ":":
            self._stop(f"has {self._found()} where ':' is expected")
        self.at += 1

    def _string(self) -> str:
        text, start = self.text, self.at
        end = start
        while True:
            end = text.find('"', end + 1)
            if end < 0:
                self._stop("ends within a string")
            before = end - 1
            while text[before] == "\\":
                before -= 1
            if (end - before) % 2:
                break
        newline = text.find("\n", start, end)
        if newline >= 0:
            self.at = newline
            self._stop("has a line break within a string (it is written \\n)")
        token = text[start : end + 1]
        try:
            value = json.loads(token)
        except json.JSONDecodeError as problem:
            self.at = start + problem.pos
            self._stop("has a control character or a wrong escape within a string")
        assert isinstance(value, str)
        if "\\u" in token and not _is_unicode(value):
            self._stop("has half a surrogate pair within a string", "json.surrogate")
        self.at = end + 1
        return value

    def _scalar(self, char: str) -> int | float | bool | None:
        word = _WORD.match(self.text, self.at)
        if word:
            if word[0] in _WORDS:
                self.at = word.end()
                return _WORDS[word[0]]
            if word[0] in _NOT_NUMBERS:
                self._stop(f"has {word[0]}, which is no JSON", "json.number")
        number = _NUMBER.match(self.text, self.at, self.at + MAX_NUMBER_CHARS + 1)
        if char == "" or number is None:
            self._stop(f"has {self._found()} where a value is expected")
        if number.end() - self.at > MAX_NUMBER_CHARS:
            self._stop(f"has a number of more than {MAX_NUMBER_CHARS} characters", "json.number")
        if number[1] is None and number[2] is None:
            integer = int(number[0])
            if abs(integer) > MAX_INTEGER:
                self._stop("has an integer beyond ±(2^53−1)", "json.number")
            self.at = number.end()
            return integer
        fraction = float(number[0])
        if math.isinf(fraction):
            self._stop("has a number that is too large", "json.number")
        self.at = number.end()
        return fraction

    def _space(self) -> None:
        match = _SPACE.match(self.text, self.at)
        assert match is not None
        if match.end() > self.at:
            self.line += self.text.count("\n", self.at, match.end())
            self.at = match.end()

    def _char(self) -> str:
        return self.text[self.at : self.at + 1]

    def _found(self) -> str:
        char = self._char()
        return shown(char) if char else "its end"

    def _stop(self, reason: str, rule: str = "json.syntax") -> NoReturn:
        raise _Stop(Flaw(reason, rule, self.at, self.line, self.count))


def _is_unicode(value: str) -> bool:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
