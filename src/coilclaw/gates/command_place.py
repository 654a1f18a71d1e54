"""Options that have a command work elsewhere in the tree, such as ``make -C DIR``.

Such a command is what it would be without them, in another directory or with another file of the
tree. They are taken out, so that the rest is judged like any other command; a spelling that is not
known here stays, and is a forbidden option.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_ENDS: Final = frozenset({"--", "-args"})
"""What follows is for another program."""


@dataclass(frozen=True, slots=True)
class PlaceOptions:
    """The options of a program that name a directory to work in, or its file there."""

    directory: tuple[str, ...] = ()
    file: tuple[str, ...] = ()
    attached: bool = False
    """Whether a value may follow a letter at once."""
    equals: bool = False
    """Whether ``=`` may stand behind one dash as well."""


@dataclass(frozen=True, slots=True)
class PlacedCommand:
    """A command without what says where it works."""

    argv: tuple[str, ...]
    directory: str | None = None
    file: str | None = None
    """Relative to the directory."""
    options: tuple[str, ...] = ()
    """Those that were taken out, without their values."""
    repeated: str = ""
    """An option that is there twice."""


_MAKE: Final = PlaceOptions(("-C", "--directory"), ("-f", "--file", "--makefile"), attached=True)
PLACE_OPTIONS: Final[Mapping[str, PlaceOptions]] = {
    "make": _MAKE,
    "gmake": _MAKE,
    "ninja": PlaceOptions(("-C",), ("-f",), attached=True),
    "npm": PlaceOptions(("--prefix", "-C")),
    "pnpm": PlaceOptions(("--dir", "-C")),
    "yarn": PlaceOptions(("--cwd",)),
    "cargo": PlaceOptions(file=("--manifest-path",)),
    "go": PlaceOptions(("-C",), equals=True),
}


def read_placed(argv: tuple[str, ...]) -> PlacedCommand:
    """Take out of a command what says where it works; any other command is returned as it is."""
    known = PLACE_OPTIONS.get(argv[0]) if argv else None
    if known is None:
        return PlacedCommand(argv)
    found: dict[bool, str] = {}
    options: list[str] = []
    rest, at = [argv[0]], 1
    while at < len(argv) and argv[at] not in _ENDS:
        option, value, length = _read_option(argv[at : at + 2], known)
        if not option:
            rest.append(argv[at])
        elif (option in known.file) in found:
            return PlacedCommand(argv, repeated=option)
        else:
            found[option in known.file] = value
            options.append(option)
        at += length
    placed = (*rest, *argv[at:])
    return PlacedCommand(placed, found.get(False), found.get(True), tuple(options))


def _read_option(words: tuple[str, ...], known: PlaceOptions) -> tuple[str, str, int]:
    """Return the option that the first word is, its value, and how many words both are."""
    word = words[0]
    options = (*known.directory, *known.file)
    name, given, value = word.partition("=")
    if word in options:
        return word, words[1] if len(words) > 1 else "", 2
    if given and name in options and (name.startswith("--") or known.equals):
        return name, value, 1
    if known.attached and not word.startswith("--") and word[:2] in options:
        return word[:2], word[2:], 1
    return "", "", 1
