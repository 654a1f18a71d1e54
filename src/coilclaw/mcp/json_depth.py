"""JSON that is nested too deeply: cut without reading it, which would take a level of ours each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from coilclaw.domain.messages import Json

MAX_LEVELS: Final = 100
"""Of a whole message; the library that reads it gives up at 200."""
CUT: Final = b'"(nested too deeply)"'

_PART: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]')


def cut_levels(line: bytes, most: int = MAX_LEVELS) -> bytes:
    """Return a message with everything below a level replaced by a text that says so."""
    kept: list[bytes] = []
    level, at = 0, 0
    for found in _PART.finditer(line):
        if found[0] in (b"[", b"{"):
            level += 1
            if level == most + 1:
                kept += (line[at : found.start()], CUT)
        elif found[0] in (b"]", b"}"):
            level -= 1
            if level == most:
                at = found.end()
    if level <= most:
        kept.append(line[at:])
    return b"".join(kept)


def levels(value: Json) -> int:
    """Count how deeply a value is nested."""
    deepest, waiting = 0, [(value, 1)]
    while waiting:
        one, level = waiting.pop()
        deepest = max(deepest, level)
        inner = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        waiting += [(each, level + 1) for each in inner]
    return deepest
