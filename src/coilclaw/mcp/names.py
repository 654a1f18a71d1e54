"""What a foreign tool is called here: a name that every provider takes and no two tools share."""

from __future__ import annotations

import re
from typing import Final

from coilclaw.domain.canonical import digest

LONGEST: Final = 64
SEPARATOR: Final = "__"

_DIGITS: Final = 10
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")
_MARKED: Final = re.compile(rf"-[0-9a-f]{{{_DIGITS}}}\Z")
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")


def tool_name(server: str, tool: str) -> str:
    """Return ``SERVER__TOOL``; one that cannot be is changed, and marked with a digest.

    The name depends on nothing else, so that it stays when other tools come and go. The name of a
    server holds no ``__``, and one that looks marked is marked again: no two tools meet.
    """
    name = f"{server}{SEPARATOR}{tool}"
    if _PLAIN.fullmatch(name) and len(name) <= LONGEST and not _MARKED.search(name):
        return name
    mark = digest(f"{server}\0{tool}".encode("utf-8", "surrogatepass"))[:_DIGITS]
    return f"{_OTHER.sub('_', name)[: LONGEST - _DIGITS - 1]}-{mark}"
