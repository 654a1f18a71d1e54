"""``summarize_part``: one part of an agent's work in a few bounded values, for a line of a display.

Whoever calls it has taken the secrets out of the part: half of one would not be recognised.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from coilclaw.agents.denial import describe_call, read_command
from coilclaw.agents.process import ERROR_OUTPUT

if TYPE_CHECKING:
    from collections.abc import Callable

    from coilclaw.domain.messages import Json
    from coilclaw.domain.parts import Part

MAX_SHOWN_CHARS: Final = 2_000
MAX_FILES: Final = 20


def summarize_part(
    part: Part, count_lines: Callable[[str], tuple[int, int] | None]
) -> dict[str, Json] | None:
    """Return kind and content of a part; ``None`` for what was shown line by line already."""
    if part.item_type == ERROR_OUTPUT:
        return None
    if part.kind in {"reasoning", "text"}:
        kind = "thought" if part.kind == "reasoning" else "message"
        return {"kind": kind, "text": read_first_line(part.text)[:MAX_SHOWN_CHARS]}
    record: dict[str, Json] = {"kind": "tool", "text": describe_call(part)[:MAX_SHOWN_CHARS]}
    if part.files:
        record["kind"] = "file"
        some = part.files[:MAX_FILES]
        record["files"] = [_describe_file(path, count_lines(path)) for path in some]
        record["more_files"] = len(part.files) - len(some)
    elif read_command(part):
        record["kind"] = "command"
    if part.exit_code is not None:
        record["exit_code"] = part.exit_code
    return record


def read_first_line(text: str) -> str:
    """Return the first line that says something; of a JSON answer, its summary."""
    start = text.lstrip()
    if start.startswith("{"):
        try:
            answer = json.loads(start)
        except (ValueError, RecursionError):
            answer = None
        if isinstance(answer, dict) and isinstance(answer.get("summary"), str):
            start = answer["summary"].strip()
    return start.partition("\n")[0].strip()


def _describe_file(path: str, counted: tuple[int, int] | None) -> dict[str, Json]:
    added, removed = counted or (None, None)
    return {"path": path[:MAX_SHOWN_CHARS], "added": added, "removed": removed}
