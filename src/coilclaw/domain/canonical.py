"""Canonical JSON (RFC 8785) for records that are hashed.

The values are restricted so that a sorted, compact encoding *is* the RFC 8785 form: keys are
ASCII, integers lie within ±(2^53−1), strings are valid Unicode, and there are no floats. Free-form
JSON enters a record as text or as a hash, never as a nested value.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from coilclaw.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_INTEGER: Final = 2**53 - 1
MAX_DEPTH: Final = 32

_ENCODER: Final = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False
)


def _compiled() -> Callable[[dict[str, object]], str]:
    """Return the encoder with its compiled part made once: a journal encodes a record an append."""
    make = getattr(json.encoder, "c_make_encoder", None)
    text = getattr(json.encoder, "c_encode_basestring", None)
    if make is None or text is None:
        return _ENCODER.encode
    pieces = make(None, _ENCODER.default, text, None, ":", ",", True, False, False)
    return lambda record: "".join(pieces(record, 0))


_TEXT: Final = _compiled()


def encode(record: Mapping[str, object]) -> bytes:
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


def digest(data: bytes) -> str:
    """Return the SHA-256 of some bytes in hexadecimal."""
    return sha256(data).hexdigest()


def _check(value: object, where: str, depth: int) -> None:
    if depth == 0:
        raise UsageError(f"record value at {where} is nested too deeply", rule="canonical.depth")
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return
    if kind is int:
        assert isinstance(value, int)
        if not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise UsageError(f"integer at {where} is beyond ±(2^53−1)", rule="canonical.integer")
    elif kind is list or kind is tuple:
        assert isinstance(value, list | tuple)
        for index, item in enumerate(value):
            _check(item, f"{where}[{index}]", depth - 1)
    elif kind is dict:
        assert isinstance(value, dict)
        for key, item in value.items():
            if type(key) is not str or not key.isascii():
                raise UsageError(f"key {key!r} at {where} is not ASCII", rule="canonical.key")
            _check(item, f"{where}.{key}", depth - 1)
    else:
        raise UsageError(
            f"value at {where} has type {kind.__name__}; a record holds strings, integers, "
            "booleans, null, lists and objects",
            rule="canonical.type",
        )
