"""The text of a ``$'…'`` string."""

from __future__ import annotations

import re
from typing import Final

from coilclaw.security.shellfault import Unreadable, excerpt

_BODY: Final = re.compile(r"(?:[^'\\]|\\.)*", re.DOTALL)
_PART: Final = re.compile(
    r"(?P<plain>[^\\]+)"
    r"|\\(?:(?P<named>[abeEfnrtv\\'\"?])"
    r"|(?P<octal>[0-7]{1,3})"
    r"|x(?P<byte>[0-9a-fA-F]{1,2})"
    r"|(?:u(?P<short>[0-9a-fA-F]{1,4})|U(?P<long>[0-9a-fA-F]{1,8}))"
    r"|c(?P<control>[A-Za-z])"
    r"|(?P<kept>[^cuUx0-7]))",
    re.DOTALL,
)
_NAMED: Final = {
    "a": b"\a",
    "b": b"\b",
    "e": b"\x1b",
    "E": b"\x1b",
    "f": b"\f",
    "n": b"\n",
    "r": b"\r",
    "t": b"\t",
    "v": b"\v",
    "\\": b"\\",
    "'": b"'",
    '"': b'"',
    "?": b"?",
}
# The shell marks characters with these two bytes itself, and has mistaken them before.
_SHELLS_OWN: Final = frozenset({0x01, 0x7F})


def read(text: str, start: int, end: int) -> tuple[str | None, int]:
    """Return the value of the string whose ``$'`` is at ``start``, and the place behind it.

    The value is ``None`` when it depends on the locale of the shell.
    """
    body = _BODY.match(text, start + 2, end)
    assert body is not None
    if body.end() >= end:
        raise Unreadable("shell.syntax", "a $'…' string has no end", excerpt(text, start))
    value = bytearray()
    known = True
    at = 0
    while at < len(body[0]):
        part = _PART.match(body[0], at)
        if part is None:
            raise Unreadable("shell.construct", "an escape in $'…'", excerpt(text, start))
        code = _code(part)
        if isinstance(code, int):
            known = known and code < 0x80 and code not in _SHELLS_OWN
            code = chr(code).encode("utf-8", "replace") if code <= 0x10FFFF else b"?"
        if b"\0" in code:
            raise Unreadable("shell.text", "a NUL cuts a $'…' string short", excerpt(text, start))
        known = known and _SHELLS_OWN.isdisjoint(code)
        value += code
        at = part.end()
    try:
        return (value.decode() if known else None), body.end() + 1
    except UnicodeDecodeError:
        raise Unreadable("shell.text", "a $'…' string is not UTF-8", excerpt(text, start)) from None


def _code(part: re.Match[str]) -> bytes | int:
    """Return the bytes of one part, or the code point that the locale makes bytes of."""
    kind = part.lastgroup
    assert kind is not None
    digits = part[kind]
    match kind:
        case "named":
            return _NAMED[digits]
        case "octal":
            return bytes([int(digits, 8) & 0xFF])
        case "byte":
            return bytes([int(digits, 16)])
        case "short" | "long":
            return int(digits, 16)
        case "control":
            return bytes([ord(digits.upper()) & 0x1F])
        case "kept":
            return b"\\" + digits.encode()
        case _:
            return digits.encode()
