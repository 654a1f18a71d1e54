"""The paths that a git patch names, and ``diff_name_only.txt``, which is made from them.

A line of content never looks like a header: in a hunk it starts with a mark, and in a binary patch
it holds no blank.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_START: Final = b"diff --git "
_QUOTED: Final = re.compile(rb'"((?:[^"\\]|\\.)*)"')
_ESCAPE: Final = re.compile(rb'\\(?:([0-3][0-7]{2})|([abfnrtv"\\]))')
_LETTERS: Final = dict(zip(b'abfnrtv"\\', b'\a\b\f\n\r\t\v"\\', strict=True))
_SPELLED: Final = {value: letter for letter, value in _LETTERS.items()}
_HUNK: Final = re.compile(rb"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_ENDS: Final = (b"rename from ", b"rename to ", b"copy from ", b"copy to ")


@dataclass(frozen=True, slots=True)
class PatchNames:
    """Paths as bytes, sorted, each once."""

    changed: tuple[bytes, ...]
    """Paths that differ afterwards: both ends of a rename, the new end of a copy."""
    touched: tuple[bytes, ...]
    """All paths of the patch, also the source of a copy."""


def read_patch_names(patch: bytes) -> PatchNames:
    """Return the paths of a patch; raise ``UsageError`` if its names cannot be read."""
    changed: set[bytes] = set()
    touched: set[bytes] = set()
    for header in _list_headers(patch):
        old, new, copied = read_pair(header)
        touched |= {old, new}
        changed |= {new} if copied else {old, new}
    return PatchNames(tuple(sorted(changed)), tuple(sorted(touched)))


def render_names(paths: Iterable[bytes]) -> bytes:
    """Return the text of ``diff_name_only.txt``: one path a line, quoted as git does."""
    return b"".join(_quote(path) + b"\n" for path in sorted(set(paths)))


def name_only(patch: bytes) -> bytes:
    """Return the ``diff_name_only.txt`` of a patch: exactly the paths that changed."""
    return render_names(read_patch_names(patch).changed)


def _list_headers(patch: bytes) -> Iterator[list[bytes]]:
    """Yield the header lines of each file, the ``diff --git`` line first."""
    header: list[bytes] | None = None
    for line in patch.split(b"\n"):
        if line.startswith(_START):
            if header is not None:
                yield header
            header = [line]
        elif header is not None and line.startswith((*_ENDS, b"--- ", b"+++ ")):
            # Content may begin with these too; a header's own lines come first, and count.
            header.append(line)
    if header is not None:
        yield header


def read_pair(header: list[bytes]) -> tuple[bytes, bytes, bool]:
    """Return both names of one file from its header lines, and whether the second is a copy."""
    ends: dict[bytes, bytes] = {}
    for line in header[1:]:
        if line.startswith((b"--- ", b"+++ ")):
            break
        for mark in _ENDS:
            if line.startswith(mark) and mark not in ends:
                ends[mark] = _read_name(line[len(mark) :])
    for kind in (b"rename", b"copy"):
        old, new = ends.get(kind + b" from "), ends.get(kind + b" to ")
        if old is not None and new is not None:
            return old, new, kind == b"copy"
    first, second = _read_first_line(header[0][len(_START) :])
    return first, second, False


def _read_first_line(text: bytes) -> tuple[bytes, bytes]:
    """Read ``a/NAME b/NAME``; without a rename both are the same."""
    if text.startswith(b'"'):
        old, rest = _unquote(text)
        new = _read_name(rest[1:]) if rest.startswith(b" ") else b""
    else:
        half = len(text) // 2
        old, new = text[:half], text[half + 1 :]
    if old[:2] != b"a/" or new[:2] != b"b/" or old[2:] != new[2:] or len(old) == len(b"a/"):
        raise UsageError(
            f"the patch has a header whose names cannot be read: {text[:200]!r}", rule="patch.names"
        )
    return old[2:], new[2:]


def _read_name(text: bytes) -> bytes:
    if not text.startswith(b'"'):
        return text
    name, rest = _unquote(text)
    if rest:
        raise UsageError(f"the patch has an odd name: {text[:200]!r}", rule="patch.names")
    return name


def _unquote(text: bytes) -> tuple[bytes, bytes]:
    quoted = _QUOTED.match(text)
    if quoted is None:
        raise UsageError(f"the patch has an odd name: {text[:200]!r}", rule="patch.names")
    return _ESCAPE.sub(_unescape, quoted[1]), text[quoted.end() :]


def _unescape(escape: re.Match[bytes]) -> bytes:
    octal, letter = escape.groups()
    return bytes([int(octal, 8) if octal else _LETTERS[letter[0]]])


def _quote(path: bytes) -> bytes:
    try:
        path.decode("utf-8")
        odd = any(byte < 0x20 or byte == 0x7F or byte in b'"\\' for byte in path)
    except UnicodeDecodeError:
        odd = True
    if not odd:
        return path
    out = bytearray(b'"')
    for byte in path:
        if byte in _SPELLED:
            out += b"\\" + bytes([_SPELLED[byte]])
        elif byte < 0x20 or byte >= 0x7F:
            out += b"\\%03o" % byte
        else:
            out.append(byte)
    return bytes(out + b'"')


def line_counts(patch: bytes) -> tuple[tuple[bytes, int, int], ...]:
    """Return each file of a patch with the lines added and removed, in the patch's order."""
    found: list[tuple[bytes, int, int]] = []
    header: list[bytes] = []
    added = removed = old_left = new_left = 0
    for line in (*patch.split(b"\n"), _START):
        if old_left > 0 or new_left > 0:
            mark = line[:1]
            old_left -= mark in {b"-", b" "}
            new_left -= mark in {b"+", b" "}
            removed += mark == b"-"
            added += mark == b"+"
        elif line.startswith(_START):
            if header:
                found.append((read_pair(header)[1], added, removed))
            header, added, removed = [line], 0, 0
        elif hunk := _HUNK.match(line):
            old_left, new_left = (int(count or 1) for count in hunk.groups())
        elif line.startswith(_ENDS):
            header.append(line)
    return tuple(found)
