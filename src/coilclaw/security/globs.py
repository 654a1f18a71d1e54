"""Path globs: ``*`` stays within a name, ``**`` crosses names, a match covers all that is below."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.domain.treepath import fold
from coilclaw.errors import UsageError

if TYPE_CHECKING:
    from coilclaw.domain.treepath import TreePath

MAX_GLOB: Final = 1000


@dataclass(frozen=True, slots=True)
class Glob:
    """A compiled glob; one without a slash matches at any depth, one with a slash from the root."""

    text: str
    _pattern: re.Pattern[str]

    @classmethod
    def parse(cls, text: str) -> Glob:
        """Compile a glob; an empty, absolute or climbing one is a usage error."""
        trimmed = text.rstrip("/")
        anchored = trimmed.startswith("/")
        body = trimmed.removeprefix("/").removeprefix("./")
        names = body.split("/")
        if not body or "" in names or ".." in names or len(text) > MAX_GLOB:
            raise UsageError(
                f"glob {text!r} is not a relative path pattern",
                rule="glob.malformed",
                hint="use names, '*', '?', '[…]' and '**', for example 'docs/**' or '*.lock'",
            )
        if len(names) == 1 and not anchored:
            names = ["**", *names]
        return cls(text, re.compile(_translate(names)))

    def covers(self, path: TreePath) -> bool:
        """Tell whether the path, or a directory it lies in, matches, however it is spelled."""
        return self._pattern.match("/".join(path.folded)) is not None


def literal(path: str) -> str:
    """Return the glob that means exactly this path and what is below it."""
    return "/" + "".join(f"[{char}]" if char in "*?[" else char for char in path)


def _translate(names: list[str]) -> str:
    out: list[str] = []
    for index, name in enumerate(names):
        last = index == len(names) - 1
        if name == "**":
            out.append(".+" if last else "(?:[^/]+/)*")
            continue
        out.append(_name(fold_pattern(name)))
        if not last:
            out.append("/")
    return "".join(out) + r"(?:/.*)?\Z"


def fold_pattern(name: str) -> str:
    """Fold the literal text of one glob name as ``TreePath.folded`` folds names."""
    folded = fold(name)
    return folded or name


def _name(name: str) -> str:
    out: list[str] = []
    index = 0
    while index < len(name):
        char = name[index]
        index += 1
        if char == "*":
            out.append("[^/]*")
        elif char == "?":
            out.append("[^/]")
        elif char == "[" and (end := name.find("]", index + 1)) > 0:
            body = name[index:end].replace("\\", "\\\\").replace("[", "\\[")
            if body.startswith("!"):
                body = "^/" + body[1:]
            out.append(f"[{body}]")
            index = end + 1
        else:
            out.append(re.escape(char))
    return "".join(out)
