"""Canonical JSON (RFC 8785) for records that are hashed.

The values are restricted so that a sorted, compact encoding *is* the RFC 8785 form: keys are
ASCII, integers lie within ±(2^53−1), strings are valid Unicode, and floats are excluded. Free-form
JSON enters a record as text or as a hash, never as a nested value.
"""

from __future__ import annotations

import json
import math
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from coilclaw.kernel.errors import UsageError
from coilclaw.kernel.strict_json import MAX_INTEGER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coilclaw.kernel.messages import Json


MAX_DEPTH: Final = 32
_TYPES: Final = frozenset({str, bool, type(None), int, list, tuple, dict})

_ENCODER: Final = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False
)


def _compile_encoder() -> Callable[[dict[str, object]], str]:
    """Return the encoder with its compiled part made once: a journal encodes a record an append."""
    make = getattr(json.encoder, "c_make_encoder", None)
    text = getattr(json.encoder, "c_encode_basestring", None)
    if make is None or text is None:
        return _ENCODER.encode
    pieces = make(None, _ENCODER.default, text, None, ":", ",", True, False, False)
    return lambda record: "".join(pieces(record, 0))


_TEXT: Final = _compile_encoder()


def encode_record(record: Mapping[str, object]) -> bytes:
    """Return the RFC 8785 bytes of a record; a value that has none here is a ``UsageError``."""
    for key, value in record.items():
        if type(key) is not str or not key.isascii():
            raise UsageError(f"record key {key!r} is not ASCII", rule="canonical.key")
        kind = type(value)
        if kind is str or value is None or kind is bool:
            continue
        _check(value, key, MAX_DEPTH)
    try:
        return _TEXT(dict(record)).encode("utf-8")
    except UnicodeEncodeError as problem:
        raise UsageError(
            "record holds a string that is not valid Unicode", rule="canonical.text"
        ) from problem


def digest_bytes(data: bytes) -> str:
    """Return the SHA-256 of some bytes in hexadecimal."""
    return sha256(data).hexdigest()


def _check(value: object, where: str, depth: int) -> None:
    if depth == 0:
        raise UsageError(f"record value at {where} is nested too deeply", rule="canonical.depth")
    kind = type(value)
    if kind not in _TYPES:
        raise UsageError(
            f"value at {where} has type {kind.__name__}; a record holds strings, integers, "
            "booleans, null, lists and objects",
            rule="canonical.type",
        )
    if isinstance(value, int) and not -MAX_INTEGER <= value <= MAX_INTEGER:
        raise UsageError(f"integer at {where} is beyond ±(2^53−1)", rule="canonical.integer")
    if isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _check(item, f"{where}[{index}]", depth - 1)
    if isinstance(value, dict):
        for key, item in value.items():
            if type(key) is not str or not key.isascii():
                raise UsageError(f"key {key!r} at {where} is not ASCII", rule="canonical.key")
            _check(item, f"{where}.{key}", depth - 1)


MAX_FREE_DEPTH: Final = 128
_EXPONENT_FROM: Final = 21
_FRACTION_FROM: Final = -7


def render_json(value: Json) -> str:
    """Return the canonical text; a value that has none is a ``UsageError``."""
    result = _render(value, MAX_FREE_DEPTH)
    try:
        result.encode("utf-8")
    except UnicodeEncodeError as problem:
        raise UsageError(
            "the value holds a string that is not valid Unicode", rule="canonical.text"
        ) from problem
    return result


def hash_json(value: Json) -> str:
    """Return the SHA-256 of the canonical text."""
    return digest_bytes(render_json(value).encode("utf-8"))


def _render(value: Json, depth: int) -> str:
    if depth == 0:
        raise UsageError("the value is nested too deeply", rule="canonical.depth")
    if value is None or isinstance(value, bool | str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int | float):
        return _render_number(value)
    if isinstance(value, list):
        return f"[{','.join(_render(item, depth - 1) for item in value)}]"
    # Members are sorted by UTF-16 code units, which is not the order of code points.
    names = sorted(value, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
    members = (f"{_render(name, depth)}:{_render(value[name], depth - 1)}" for name in names)
    return f"{{{','.join(members)}}}"


def _render_number(value: float) -> str:
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
