"""Read JSON that has one meaning only: UTF-8, no repeated key, no NaN, bounded depth."""

from __future__ import annotations

import json
import math
import re
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

from coilclaw.kernel.tree_path import quote_text

if TYPE_CHECKING:
    from coilclaw.kernel.messages import Json

MAX_DEPTH: Final = 64
MAX_INTEGER: Final = 2**53 - 1
"""The largest integer that every JSON reader keeps exactly."""

_TOKENS: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)


class JsonFault(ValueError):
    """The text is not strict JSON; the message continues a sentence ("the file …")."""


def read_json(
    data: bytes | str, *, max_depth: int = MAX_DEPTH, max_integer: int | None = None
) -> Json:
    """Return the value of a JSON text; anything else raises ``JsonFault``."""
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise JsonFault(f"is not valid UTF-8 at byte {problem.start}") from None
    if text.count("[") + text.count("{") > max_depth:
        # Checked before parsing: the parser recurses once for every level.
        _check_depth(text, max_depth)
    try:
        value: Json = json.loads(
            text,
            object_pairs_hook=_read_members,
            parse_constant=_refuse_constant,
            parse_float=_read_fraction,
            parse_int=int if max_integer is None else partial(_read_integer, max_integer),
        )
    except json.JSONDecodeError as problem:
        where = f"line {problem.lineno}, column {problem.colno}"
        raise JsonFault(f"is not valid JSON: {problem.msg} at {where}") from None
    except JsonFault:
        raise
    except ValueError as problem:  # an integer with thousands of digits
        raise JsonFault(f"has a number that is too large: {problem}") from None
    return value


def read_json_object(
    data: bytes | str, *, max_depth: int = MAX_DEPTH, max_integer: int | None = None
) -> dict[str, Json]:
    """Return the JSON object of a text; anything else raises ``JsonFault``."""
    value = read_json(data, max_depth=max_depth, max_integer=max_integer)
    if not isinstance(value, dict):
        raise JsonFault("is not a JSON object")
    return value


def measure_depth(value: object) -> int:
    """Count the levels of a value; a scalar has none. Does not recurse."""
    depth, level = 0, [value]
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        level = [
            inner for item in level for inner in (item.values() if isinstance(item, dict) else item)
        ]
    return depth


def _check_depth(text: str, max_depth: int) -> None:
    depth = 0
    for token in _TOKENS.finditer(text):
        depth += (token[0] in "[{") - (token[0] in "]}")
        if depth > max_depth:
            raise JsonFault(f"is nested more than {max_depth} levels deep")


def _read_members(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in members if names.count(name) > 1)
        raise JsonFault(f"has the key {quote_text(twice)} twice in one object")
    return members


def _refuse_constant(word: str) -> NoReturn:
    raise JsonFault(f"has {word}, which is not valid JSON")


def _read_fraction(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise JsonFault("has a number that is too large")
    return value


def _read_integer(most: int, text: str) -> int:
    if len(text) > len(str(most)) + 1 or abs(int(text)) > most:
        raise JsonFault(f"has an integer beyond ±{most}")
    return int(text)
