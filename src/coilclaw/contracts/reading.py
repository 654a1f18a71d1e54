"""Reading a contract or a policy from bytes: strict JSON, bounded, one meaning only."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, NoReturn, cast

from coilclaw.domain.treepath import shown
from coilclaw.errors import UsageError

if TYPE_CHECKING:
    from coilclaw.domain.messages import Json

MAX_BYTES: Final = 2**20
MAX_DEPTH: Final = 64
MAX_INTEGER: Final = 2**53 - 1
_TOKENS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def parse(data: bytes) -> dict[str, Json]:
    """Return the object that some bytes are, or say what is wrong with them (``contract.json``)."""
    if len(data) > MAX_BYTES:
        _refuse(f"has {len(data)} bytes, and {MAX_BYTES} are the most")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        _refuse(f"is not UTF-8 at byte {problem.start}")
    if text.startswith("\ufeff"):
        _refuse("starts with a byte order mark")
    # Before the parser: it recurses, and would end in a fault of the interpreter.
    _check_depth(text)
    try:
        value = json.loads(
            text,
            object_pairs_hook=_members,
            parse_constant=_constant,
            parse_int=_integer,
            parse_float=_fraction,
        )
    except json.JSONDecodeError as problem:
        _refuse(f"is no JSON: {problem.msg} at line {problem.lineno}, column {problem.colno}")
    if not isinstance(value, dict):
        _refuse("is no JSON object")
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        _refuse("has half a surrogate pair in a string")
    return cast("dict[str, Json]", value)


def _check_depth(text: str) -> None:
    depth = 0
    for token in _TOKENS.finditer(text):
        if token[0] in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                _refuse(f"is nested more than {MAX_DEPTH} deep")
        elif token[0] in "]}":
            depth -= 1


def _members(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for name, value in pairs:
        if name in found:
            _refuse(f"has the key {shown(name)} twice in one object")
        found[name] = value
    return found


def _constant(word: str) -> NoReturn:
    _refuse(f"has {word}, which is no JSON")


def _integer(text: str) -> int:
    if len(text) > len(str(MAX_INTEGER)) + 1 or abs(int(text)) > MAX_INTEGER:
        _refuse("has an integer beyond ±(2^53−1)")
    return int(text)


def _fraction(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        _refuse("has a number that is too large")
    return value


def _refuse(reason: str) -> NoReturn:
    raise UsageError(f"the file {reason}", rule="contract.json")
