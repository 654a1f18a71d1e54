"""``DenyRule``: a command that the policy file denies at every level, besides the built-in ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

SHORTEST_ABBREVIATION = 4


@dataclass(frozen=True, slots=True)
class DenyRule:
    """A program with words that must all stand behind it; any of the lists is enough."""

    id: str
    reason: str
    commands: tuple[tuple[str, ...], ...] = ()
    """Each a program and the words that make it denied: ``git push --force``."""

    def denies(self, argv: Sequence[str]) -> bool:
        """Whether the rule covers a command; flags count in clusters and abbreviated, too."""
        return any(
            argv[:1] == command[:1] and all(_has(argv[1:], word) for word in command[1:])
            for command in (list(each) for each in self.commands)
        )


def _has(argv: Sequence[str], wanted: str) -> bool:
    if wanted.startswith("--"):
        return any(
            (name := word.partition("=")[0]) == wanted
            or (len(name) >= SHORTEST_ABBREVIATION and wanted.startswith(name))
            for word in argv
        )
    if wanted.startswith("-") and len(wanted) == 2:
        return any(
            word.startswith("-") and not word.startswith("--") and wanted[1] in word
            for word in argv
        )
    return wanted in argv
