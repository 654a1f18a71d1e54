"""``cd``: in which directories the commands after it may run."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from coilclaw.security.wordpaths import join

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coilclaw.security.shellscript import Simple, Word
    from coilclaw.security.wordpaths import Scene

MAX_DIRECTORIES: Final = 8
_MOVERS: Final = frozenset({"cd", "chdir"})
_ELSEWHERE: Final = frozenset({"eval", "source", ".", "pushd", "popd", "trap", "alias", "shopt"})
_BEFORE: Final = frozenset({"command", "builtin", "time", "-p", "--"})
_AMPERSANDS: Final = re.compile(r"[0-9]*>&[0-9-]|&>|&&")


def is_chain(text: str) -> bool:
    """Whether every command of a text runs only if the one before it succeeded."""
    return not any(sign in _AMPERSANDS.sub("", text) for sign in (";", "&", "||", "\n", "!"))


def after_command(scene: Scene, commands: Sequence[Simple], index: int, *, chain: bool) -> Scene:
    """Return the scene after a command: both directories when it is not sure to have moved."""
    words = _own_words(commands[index])
    if not words or words[0].text not in _MOVERS:
        return replace(scene, lost=scene.lost or _may_move(words))
    directory = _target(words[1:])
    if directory is None:
        return replace(scene, lost=True)
    moved = tuple(join(base, directory) for base in scene.directories)
    if _surely(scene, commands, index, directory, chain=chain):
        return replace(scene, directories=moved)
    both = tuple(dict.fromkeys((*scene.directories, *moved)))
    if len(both) > MAX_DIRECTORIES:
        return replace(scene, lost=True)
    return replace(scene, directories=both)


def _may_move(words: Sequence[Word]) -> bool:
    return bool(words) and words[0].text in _ELSEWHERE


def _own_words(command: Simple) -> Sequence[Word]:
    """Return the words without those that leave a builtin where it is."""
    words = list(command.words)
    while words and words[0].text in _BEFORE:
        del words[0]
    return words


def _target(operands: Sequence[Word]) -> str | None:
    """Return where a ``cd`` goes, if its words tell."""
    words = [word for word in operands if word.text not in {"--", "-L", "-P"}]
    if len(words) != 1 or words[0].text is None or words[0].globs or words[0].text == "-":
        return None
    return words[0].text


def _surely(
    scene: Scene, commands: Sequence[Simple], index: int, directory: str, *, chain: bool
) -> bool:
    """Whether it is in the open, and either first and possible, or the rest hangs on it."""
    command = commands[index]
    alone = sum(each.pipeline == command.pipeline for each in commands) == 1
    if not alone or any(each.compound or each.nested or each.background for each in commands):
        return False
    if chain:
        return True
    first = all(each.words and each.words[0].text in _MOVERS for each in commands[: index + 1])
    exists = all(place.kind == "directory" for place in scene.places(directory))
    return first and exists and not any(each.redirections for each in commands[: index + 1])
