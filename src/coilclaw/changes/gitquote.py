"""File names as git writes them in patches: raw, or C-quoted."""

from __future__ import annotations

import re
from typing import Final

_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE: Final = re.compile(rb'\\(?:([0-3][0-7]{2})|([abfnrtv"\\])|)')
_LETTERS: Final = {
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
    b'"': b'"',
    b"\\": b"\\",
}
_SPELLED: Final = {value[0]: b"\\" + letter for letter, value in _LETTERS.items()}


def quote(name: str) -> str:
    """Return a name as it stands in a patch; only names that need it are quoted."""
    if not any(ord(char) < 0x20 or char in '"\\\x7f' for char in name):
        return name
    out = bytearray()
    for byte in name.encode("utf-8"):
        if byte in _SPELLED:
            out += _SPELLED[byte]
        elif byte < 0x20 or byte == 0x7F:
            out += b"\\%03o" % byte
        else:
            out.append(byte)
    return '"' + out.decode("utf-8") + '"'


def unquote(text: str) -> tuple[str, str] | None:
    """Read the quoted name at the start of a text: the name and what follows, or ``None``.

    Bytes that are not UTF-8 come back as surrogate escapes, which no path may hold.
    """
    quoted = _QUOTED.match(text)
    if quoted is None:
        return None
    raw = quoted[1].encode("utf-8", "surrogatepass")
    out = bytearray()
    done = 0
    for escape in _ESCAPE.finditer(raw):
        out += raw[done : escape.start()]
        done = escape.end()
        octal, letter = escape.groups()
        if octal is not None:
            out.append(int(octal, 8))
        elif letter is not None:
            out += _LETTERS[letter]
        else:
            return None
    out += raw[done:]
    return out.decode("utf-8", "surrogateescape"), text[quoted.end() :]


def side(text: str) -> str | None:
    """Read the name on a ``---`` or ``+++`` line, where a tab ends a name that is not quoted."""
    if not text.startswith('"'):
        return text.split("\t", 1)[0]
    found = unquote(text)
    if found is None or found[1][:1] not in {"", "\t"}:
        return None
    return found[0]


def whole(text: str) -> str | None:
    """Read the name that takes the whole rest of a line, as after ``rename from``."""
    if not text.startswith('"'):
        return text
    found = unquote(text)
    return found[0] if found is not None and found[1] == "" else None


def pair(text: str) -> tuple[str, str] | None:
    """Read the two names of a ``diff --git`` line, prefixes included.

    Two raw names can only be told apart when they are the same but for their prefixes, as they are
    wherever no other line of the header names the file; ``None`` when they cannot.
    """
    if text.startswith('"'):
        first = unquote(text)
        if first is None or not first[1].startswith(" "):
            return None
        second = whole(first[1][1:])
        return None if second is None else (first[0], second)
    if text.endswith('"'):
        # git quotes every name that holds a quote, so the first quote starts the second name.
        old, _, rest = text.partition(' "')
        new = whole('"' + rest)
        return None if new is None else (old, new)
    half = len(text) // 2
    old, new = text[:half], text[half + 1 :]
    if len(text) % 2 == 0 or text[half] != " " or old[2:] != new[2:]:
        return None
    return old, new
