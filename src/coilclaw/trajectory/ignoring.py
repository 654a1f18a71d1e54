"""``Ignored``: what of a workspace is no work of the agent's: outputs of builds, mostly.

The patterns come with the environment, in the form of a ``.gitignore`` without exceptions; what
the agent writes into such a file changes nothing here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import translate
from typing import Final

from coilclaw.domain.treepath import shown
from coilclaw.errors import UsageError

MAX_PATTERNS: Final = 1000
MAX_PATTERN: Final = 500


def patterns(text: str) -> tuple[str, ...]:
    """Read the patterns of a file; comments and blank lines are none."""
    lines = (line.rstrip() for line in text.splitlines())
    found = tuple(line for line in lines if line and not line.startswith("#"))
    if len(found) > MAX_PATTERNS:
        raise UsageError(
            f"{len(found)} patterns are more than the {MAX_PATTERNS} that an ignore list may have",
            rule="trajectory.ignore",
        )
    return found


@dataclass(frozen=True, slots=True)
class Ignored:
    """Says of a path whether it is left out; those above it were asked about before."""

    patterns: tuple[str, ...] = ()
    _names: re.Pattern[str] | None = field(init=False, repr=False, compare=False)
    _paths: re.Pattern[str] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names, paths = [], []
        for pattern in self.patterns:
            if len(pattern) > MAX_PATTERN or pattern.startswith("!") or ".." in pattern.split("/"):
                raise UsageError(
                    f"{shown(pattern)} cannot be a pattern of an ignore list",
                    rule="trajectory.ignore",
                    hint="exceptions and '..' are not known here",
                )
            plain = pattern.rstrip("/")
            if "/" in plain:
                paths.append(translate(plain.removeprefix("/")))
            elif plain:
                names.append(translate(plain))
        object.__setattr__(self, "_names", re.compile("|".join(names)) if names else None)
        object.__setattr__(self, "_paths", re.compile("|".join(paths)) if paths else None)

    def __call__(self, path: str) -> bool:
        if self._names is not None and self._names.match(path.rpartition("/")[2]):
            return True
        return self._paths is not None and self._paths.match(path) is not None

    def covers(self, path: str) -> bool:
        """The same for a path of which nobody asked about what is above it."""
        parts = path.split("/")
        return any(self("/".join(parts[: depth + 1])) for depth in range(len(parts)))
