"""``ForbiddenAction``: something that no command may do, as words and never as a part of a text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.gates.commandline import parse
from coilclaw.gates.guarded import ENV_EXAMPLE
from coilclaw.gates.scope import folded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_VERBS: Final = frozenset(
    {"change", "changing", "edit", "editing", "modify", "modifying", "touch", "touching"}
    | {"write", "writing"}
)
_SPLIT: Final = re.compile(r"[=:,]")
_LONG: Final = {
    "rm": {"--recursive": "r", "--force": "f", "--dir": "d", "-R": "r"},
    "chmod": {"--recursive": "R"},
    "chown": {"--recursive": "R"},
    "git": {"--force": "f", "--hard": "--hard", "--delete": "d"},
}


@dataclass(frozen=True, slots=True)
class ForbiddenAction:
    """Either a command, as the words and options it starts with, or a path."""

    text: str
    words: tuple[str, ...] = ()
    flags: frozenset[str] = frozenset()
    path: str = ""

    @classmethod
    def of(cls, text: str) -> ForbiddenAction | None:
        """Read ``rm -rf``, ``git push``, ``.env`` or ``editing .env``; ``None``: unreadable."""
        argv = parse(text.strip()).argv
        if len(argv) > 1 and argv[0].lower() in _VERBS and _is_path(argv[-1]):
            argv = argv[-1:]
        if not argv:
            return None
        if len(argv) == 1 and _is_path(argv[0]):
            return cls(text, path=argv[0].removeprefix("./").rstrip("/"))
        return cls(text, tuple(_words(argv)), frozenset(_flags(argv)))

    def matches(self, argv: tuple[str, ...]) -> bool:
        if self.path:
            return any(_names(word, self.path) for word in argv)
        name = argv[0].rpartition("/")[2]
        if name != self.words[0] or not self.flags <= frozenset(_flags(argv)):
            return False
        rest, wanted = [*_words(argv)][1:], self.words[1:]
        if tuple(rest[: len(wanted)]) == wanted:
            return True
        # Options before the subcommand may have values that look like words.
        return len(argv) > 1 and argv[1].startswith("-") and _in_order(wanted, rest)


def forbidden_paths(actions: Iterable[str]) -> tuple[str, ...]:
    """Return the paths that some actions forbid to change."""
    read = (ForbiddenAction.of(text) for text in actions)
    return tuple(action.path for action in read if action is not None and action.path)


def _is_path(word: str) -> bool:
    return not word.startswith("-") and (word.startswith(".") or "/" in word.removeprefix("./"))


def _words(argv: tuple[str, ...]) -> Iterator[str]:
    return (word for word in argv if not word.startswith("-"))


def _flags(argv: tuple[str, ...]) -> Iterator[str]:
    """Options by their meaning: bundled letters apart, long names by the letter they stand for."""
    same = _LONG.get(argv[0].rpartition("/")[2], {})
    for word in argv[1:]:
        if word in {"-", "--"} or not word.startswith("-"):
            continue
        name = word.partition("=")[0]
        if name.startswith("--"):
            whole = [full for full in same if full.startswith(name)]
            yield same[whole[0]] if len(whole) == 1 else name
        else:
            for letter in name[1:]:
                yield same.get(f"-{letter}", letter)


def _in_order(wanted: tuple[str, ...], words: list[str]) -> bool:
    rest = iter(words)
    return all(word in rest for word in wanted)


def _names(word: str, path: str) -> bool:
    """Whether a word, or what stands after ``=``, ``:`` or ``,`` in it, is or leads to a path."""
    wanted = path.split("/")
    for piece in (word, *_SPLIT.split(word)):
        parts = piece.rstrip("/").split("/")
        for at in range(len(parts) - len(wanted) + 1):
            if all(map(_same_name, parts[at : at + len(wanted)], wanted)):
                return True
    return False


def _same_name(part: str, name: str) -> bool:
    if name == ".env":
        return folded(part).startswith(name) and part != ENV_EXAMPLE
    return folded(part) == folded(name)
