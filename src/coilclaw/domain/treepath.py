"""``TreePath``: a path inside a tree, checked by its text alone.

The rules are those of the strictest file system a tree may ever be checked out on, so that a name
that is harmless here cannot become ``.git`` or a device elsewhere.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Final

from coilclaw.errors import PathRefused

MAX_NAME_BYTES: Final = 255
MAX_PATH_BYTES: Final = 4000
MAX_DEPTH: Final = 128

_DRIVE: Final = re.compile(r"[A-Za-z]:")
_SHORT_GIT: Final = re.compile(r"git~[0-9]+")
_DEVICE: Final = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³])", re.IGNORECASE)
# Code points that HFS+ drops when it compares names; git guards against the same list.
_IGNORED: Final = dict.fromkeys(
    [0x200C, 0x200D, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF]
)
_BIDI: Final = frozenset([*map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))])


@dataclass(frozen=True, slots=True, order=True)
class TreePath:
    """A relative path that passed every lexical rule; build it with ``parse``."""

    parts: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> TreePath:
        """Check a path as somebody wrote it; ``.`` and empty segments inside it are dropped."""
        _check_text(text)
        if text.endswith(("/", "/.")) or text in {"", "."}:
            raise PathRefused(
                f"path {shown(text)} names a directory, not a file", path=text, rule="path.empty"
            )
        parts = tuple(part for part in text.split("/") if part not in {"", "."})
        if len(parts) > MAX_DEPTH:
            raise PathRefused(
                f"path {shown(text)} is more than {MAX_DEPTH} levels deep",
                path=text,
                rule="path.long",
            )
        for part in parts:
            _check_name(part, text)
        if parts[0] == "~":
            raise PathRefused(
                f"path {shown(text)} starts at a home directory", path=text, rule="path.home"
            )
        return cls(parts)

    @classmethod
    def parse_directory(cls, text: str) -> tuple[str, ...]:
        """Check a directory such as a bundle's ``root``; ``.`` is the tree itself."""
        trimmed = text.rstrip("/") if len(text) > 1 else text
        if trimmed in {"", "."} and text != "/":
            if text == "":
                raise PathRefused("the root is empty", path=text, rule="path.empty")
            return ()
        if trimmed.endswith("/.") and not trimmed.startswith("/"):
            return cls.parse_directory(trimmed[:-2])
        return cls.parse(trimmed).parts

    def under(self, parents: tuple[str, ...]) -> TreePath:
        """Return this path below a directory of the tree, with the rules for the whole checked."""
        return self if not parents else TreePath.parse("/".join((*parents, *self.parts)))

    @property
    def name(self) -> str:
        return self.parts[-1]

    @property
    def parents(self) -> tuple[str, ...]:
        return self.parts[:-1]

    @property
    def folded(self) -> tuple[str, ...]:
        """The path as a case-insensitive, normalising file system would compare it."""
        return tuple(fold(part) for part in self.parts)

    def __str__(self) -> str:
        return "/".join(self.parts)


def fold(name: str) -> str:
    """Return a name as the least discerning file system compares it."""
    plain = unicodedata.normalize("NFKC", name.translate(_IGNORED)).casefold()
    return plain.rstrip(". ") or plain


def shown(text: str) -> str:
    """Quote text for a message, with everything invisible or misleading made visible."""
    out = []
    for char in text[:200]:
        if char.isprintable() and char not in _BIDI and ord(char) not in _IGNORED:
            out.append(char)
        else:
            out.append(f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}")
    return "'" + "".join(out) + ("'" if len(text) <= 200 else "'…")


def _check_text(text: str) -> None:
    if "\0" in text:
        raise PathRefused(f"path {shown(text)} holds a NUL", path=text, rule="path.nul")
    for char in text:
        if unicodedata.category(char) in {"Cc", "Zl", "Zp"} or char in _BIDI:
            raise PathRefused(
                f"path {shown(text)} holds a control character", path=text, rule="path.control"
            )
    try:
        raw = text.encode("utf-8")
    except UnicodeEncodeError as problem:
        raise PathRefused(
            f"path {shown(text)} is not valid Unicode", path=text, rule="path.encoding"
        ) from problem
    if len(raw) > MAX_PATH_BYTES:
        raise PathRefused(
            f"path {shown(text)} is longer than {MAX_PATH_BYTES} bytes", path=text, rule="path.long"
        )
    if "\\" in text:
        raise PathRefused(
            f"path {shown(text)} holds a backslash",
            path=text,
            rule="path.backslash",
            hint="write paths with forward slashes",
        )
    if text.startswith("/"):
        raise PathRefused(f"path {shown(text)} is absolute", path=text, rule="path.absolute")
    if _DRIVE.match(text):
        raise PathRefused(
            f"path {shown(text)} starts with a drive letter", path=text, rule="path.drive"
        )
    if ".." in text.split("/"):
        raise PathRefused(f"path {shown(text)} climbs out with '..'", path=text, rule="path.parent")


def _check_name(name: str, text: str) -> None:
    if len(name.encode("utf-8")) > MAX_NAME_BYTES:
        raise PathRefused(
            f"path {shown(text)} has a name longer than {MAX_NAME_BYTES} bytes",
            path=text,
            rule="path.long",
        )
    stem = fold(name.split(":", 1)[0])
    if stem == ".git" or _SHORT_GIT.fullmatch(stem):
        raise PathRefused(
            f"path {shown(text)} names .git, or what some file systems read as .git",
            path=text,
            rule="path.git",
        )
    if fold(name).startswith("..") and set(fold(name)) <= {"."}:
        raise PathRefused(f"path {shown(text)} climbs out with dots", path=text, rule="path.parent")
    if _DEVICE.fullmatch(stem.split(".", 1)[0].rstrip()):
        raise PathRefused(
            f"path {shown(text)} names a Windows device", path=text, rule="path.device"
        )
    if name.endswith((".", " ")):
        raise PathRefused(
            f"path {shown(text)} has a name that ends in a dot or a space",
            path=text,
            rule="path.trailing",
        )
