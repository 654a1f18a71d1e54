"""Program text of other languages: not understood, but looked through for what is forbidden."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from coilclaw.security.commandclass import forbidden
from coilclaw.security.destructive import destructive_text
from coilclaw.security.wordpaths import check_read, is_real, looks_like_path

if TYPE_CHECKING:
    from coilclaw.security.commandclass import Classed
    from coilclaw.security.wordpaths import Scene

MAX_STRINGS: Final = 200
_STRINGS: Final = re.compile(r"\"([^\"\n]{2,4000})\"|'([^'\n]{2,4000})'|`([^`\n]{2,4000})`")
_BARE_PATHS: Final = re.compile(r"(?<![\w./~])/[\w.-]+(?:/[\w.-]+)+")
"""Of paths without quotes only those of two names or more: ``/sys/`` may be a pattern."""
_ALWAYS: Final = frozenset({"path.forbidden", "path.state"})
_COMMAND: Final = r"(?:\A|[\"'`;&|(!]\s*|\n\s*)(?:[\w./-]*/)?({names})(?=[\"'`\s;&|)]|\Z)"


_SPAWNED: Final = (
    r"(?:\bexec|\bspawn|\.shell|\.system|\\!|:!|\bsystem)\s+(?:-\S+\s+)*(?:[\w./-]*/)?({names})"
    r"(?=[\"'`\s;&|)\]]|\Z)"
)
"""Languages that start programs without quotes: Tcl, and the shells of databases and editors."""


def check_code(text: str, scene: Scene) -> list[Classed]:
    """Say what in a program's text is forbidden; silence says nothing about the rest."""
    found = []
    worst = destructive_text(text)
    if worst is not None:
        found.append(worst)
    names = "|".join(map(re.escape, scene.settings.forbidden_commands))
    named = re.search(_COMMAND.format(names=names), text) if names else None
    if named is not None:
        found.append(
            forbidden("command.forbidden", f"the program text names {named[1]!r} as a command")
        )
    spawned = re.search(_SPAWNED.format(names=names), text) if names else None
    if spawned is not None:
        found.append(forbidden("command.forbidden", f"the program text would start {spawned[1]!r}"))
    return [*found, *_paths(text, scene)]


def _paths(text: str, scene: Scene) -> list[Classed]:
    found = []
    for index, match in enumerate(_STRINGS.finditer(text)):
        value = next(group for group in match.groups() if group is not None)
        if index >= MAX_STRINGS:
            break
        for piece in dict.fromkeys((value, *value.split())):
            if looks_like_path(piece) and piece != "/" and is_real(piece, scene):
                found += [each for each in check_read(piece, scene) if each.forbidden]
    for bare in dict.fromkeys(_BARE_PATHS.findall(text)[:MAX_STRINGS]):
        found += [each for each in check_read(bare, scene) if each.rule in _ALWAYS]
    return found
