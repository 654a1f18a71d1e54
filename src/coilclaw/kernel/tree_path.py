"""``TreePath``: a path inside a tree, checked by its text alone.

The rules are those of the strictest file system a tree may ever be checked out on, so that a name
that is harmless here cannot become ``.git`` or a device elsewhere.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.kernel.errors import PathRefused

if TYPE_CHECKING:
    from collections.abc import Iterable

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
        """Check a path as it was written; ``.`` and empty segments inside it are dropped."""
        _check_text(text)
        if text.endswith(("/", "/.")) or text in {"", "."}:
            raise refuse_path(text, "path.empty", "names a directory, not a file")
        parts = tuple(part for part in text.split("/") if part not in {"", "."})
        if len(parts) > MAX_DEPTH:
            raise refuse_path(text, "path.long", f"is more than {MAX_DEPTH} levels deep")
        for part in parts:
            _check_name(part, text)
        if parts[0] == "~":
            raise refuse_path(text, "path.home", "starts at a home directory")
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
        return TreePath.parse("/".join((*parents, *self.parts)))

    @property
    def name(self) -> str:
        return self.parts[-1]

    @property
    def parents(self) -> tuple[str, ...]:
        return self.parts[:-1]

    @property
    def folded(self) -> tuple[str, ...]:
        """The path as a case-insensitive, normalising file system would compare it."""
        return tuple(fold_name(part) for part in self.parts)

    def __str__(self) -> str:
        return "/".join(self.parts)


def fold_name(name: str) -> str:
    """Return a name as the least discerning file system compares it."""
    plain = unicodedata.normalize("NFKC", name.translate(_IGNORED)).casefold()
    return plain.rstrip(". ") or plain


def quote_text(text: str) -> str:
    """Quote text for a message, with everything invisible or misleading made visible."""
    quoted = "".join(map(_show_char, text[:200]))
    return f"'{quoted}'" if len(text) <= 200 else f"'{quoted}'…"


def _show_char(char: str) -> str:
    if char.isprintable() and char not in _BIDI and ord(char) not in _IGNORED:
        return char
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def is_below(path: str, place: str) -> bool:
    """Whether an absolute path is another, or lies below it; both are compared as text."""
    return path == place or path.startswith(place.rstrip("/") + "/")


def is_below_any(path: str, places: Iterable[str]) -> bool:
    """Whether an absolute path is one of others, or lies below one of them."""
    return any(is_below(path, place) for place in places)


def refuse_path(text: str, rule: str, what: str, *, hint: str | None = None) -> PathRefused:
    """Return the error for a path that a rule refuses."""
    return PathRefused(f"path {quote_text(text)} {what}", path=text, rule=rule, hint=hint)


def _check_text(text: str) -> None:
    if "\0" in text:
        raise refuse_path(text, "path.nul", "holds a NUL")
    if any(unicodedata.category(char) in {"Cc", "Zl", "Zp"} or char in _BIDI for char in text):
        raise refuse_path(text, "path.control", "holds a control character")
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError as problem:
        raise refuse_path(text, "path.encoding", "is not valid Unicode") from problem
    if size > MAX_PATH_BYTES:
        raise refuse_path(text, "path.long", f"is longer than {MAX_PATH_BYTES} bytes")
    if "\\" in text:
        hint = "write paths with forward slashes"
        raise refuse_path(text, "path.backslash", "holds a backslash", hint=hint)
    if text.startswith("/"):
        raise refuse_path(text, "path.absolute", "is absolute")
    if _DRIVE.match(text):
        raise refuse_path(text, "path.drive", "starts with a drive letter")
    if ".." in text.split("/"):
        raise refuse_path(text, "path.parent", "climbs out with '..'")


def _check_name(name: str, text: str) -> None:
    if len(name.encode("utf-8")) > MAX_NAME_BYTES:
        raise refuse_path(text, "path.long", f"has a name longer than {MAX_NAME_BYTES} bytes")
    stem = fold_name(name.split(":", 1)[0])
    if stem == ".git" or _SHORT_GIT.fullmatch(stem):
        what = "names .git, or what some file systems read as .git"
        raise refuse_path(text, "path.git", what)
    if fold_name(name).startswith("..") and set(fold_name(name)) <= {"."}:
        raise refuse_path(text, "path.parent", "climbs out with dots")
    if _DEVICE.fullmatch(stem.split(".", 1)[0].rstrip()):
        raise refuse_path(text, "path.device", "names a Windows device")
    if name.endswith((".", " ")):
        raise refuse_path(text, "path.trailing", "has a name that ends in a dot or a space")
