"""RFC 8785 text of free-form JSON: tool arguments, payloads and results, floats included.

Records that are hashed hold this text, or its SHA-256, never the nested value.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Final

from coilclaw.domain.canonical import digest
from coilclaw.errors import UsageError

if TYPE_CHECKING:
    from coilclaw.domain.messages import Json

MAX_DEPTH: Final = 128
_EXPONENT_FROM: Final = 21
_FRACTION_FROM: Final = -7


def text(value: Json) -> str:
    """Return the canonical text; a value that has none is a ``UsageError``."""
    pieces: list[str] = []
    _write(value, pieces, MAX_DEPTH)
    result = "".join(pieces)
    try:
        result.encode("utf-8")
    except UnicodeEncodeError as problem:
        raise UsageError(
            "the value holds a string that is not valid Unicode", rule="canonical.text"
        ) from problem
    return result


def hashed(value: Json) -> str:
    """Return the SHA-256 of the canonical text."""
    return digest(text(value).encode("utf-8"))


def _write(value: Json, out: list[str], depth: int) -> None:
    if depth == 0:
        raise UsageError("the value is nested too deeply", rule="canonical.depth")
    if value is None or isinstance(value, bool):
        out.append(json.dumps(value))
    elif isinstance(value, str):
        out.append(json.dumps(value, ensure_ascii=False))
    elif isinstance(value, int | float):
        out.append(_number(value))
    elif isinstance(value, dict):
        _write_object(value, out, depth)
    else:
        out.append("[")
        for index, item in enumerate(value):
            if index:
                out.append(",")
            _write(item, out, depth - 1)
        out.append("]")


def _write_object(value: dict[str, Json], out: list[str], depth: int) -> None:
    out.append("{")
    # Members are sorted by UTF-16 code units, which is not the order of code points.
    names = sorted(value, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
    for index, name in enumerate(names):
        if index:
            out.append(",")
        out.append(json.dumps(name, ensure_ascii=False))
        out.append(":")
        _write(value[name], out, depth - 1)
    out.append("}")


def _number(value: float) -> str:
    """Write a number as ECMAScript does; an integer beyond a double's precision stays whole."""
    if isinstance(value, int):
        # RFC 8785 knows doubles only. Rounding would make two different arguments look the same.
        return str(value)
    if not math.isfinite(value):
        raise UsageError("the value holds a number that JSON has not", rule="canonical.number")
    if value == 0:
        return "0"
    sign, digits, point = _shortest(value)
    if len(digits) <= point <= _EXPONENT_FROM:
        return sign + digits + "0" * (point - len(digits))
    if 0 < point <= _EXPONENT_FROM:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if _FRACTION_FROM < point - 1 < 0 or point == 0:
        return f"{sign}0.{'0' * -point}{digits}"
    exponent = point - 1
    rest = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{rest}e{'+' if exponent > 0 else '-'}{abs(exponent)}"


def _shortest(value: float) -> tuple[str, str, int]:
    """Split the shortest decimal into sign, digits and where the point stands among them."""
    mantissa, _, exponent = f"{value!r}".partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.removeprefix("-").partition(".")
    digits = whole + fraction
    point = len(whole) + int(exponent or 0)
    stripped = digits.lstrip("0")
    point -= len(digits) - len(stripped)
    return sign, stripped.rstrip("0"), point
