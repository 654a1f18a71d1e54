"""What is told of an answer that does not fit: every part, its place and the nearest lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.changes.nearest_lines import MAX_CHARS
from coilclaw.domain.treepath import shown

if TYPE_CHECKING:
    from coilclaw.errors import CoilClawError, NearLine

MAX_LISTED: Final = 50
"""Failing parts that are told of."""
MAX_EXCERPTS: Final = 20
"""Parts that are told of with lines of their file."""


def list_failures(problem: CoilClawError) -> tuple[CoilClawError, ...]:
    """Return every part that failed; an error of one part is its own."""
    return problem.failures or (problem,)


def describe_failures(problem: CoilClawError) -> list[dict[str, object]]:
    """Return the failing parts as JSON values, as many as are told of."""
    return [
        _described(part, excerpt=number < MAX_EXCERPTS)
        for number, part in enumerate(list_failures(problem)[:MAX_LISTED])
    ]


def explain_failures(problem: CoilClawError) -> str:
    """Return all failing parts as text for whoever has to write the answer anew."""
    parts = list_failures(problem)
    lines: list[str] = []
    if len(parts) > 1:
        lines.append(f"{len(parts)} parts of the answer fail:")
    for number, part in enumerate(parts[:MAX_LISTED]):
        mark = "- " if len(parts) > 1 else ""
        lines.append(f"{mark}{locate_failure(part)} [{part.rule}]")
        if part.hint:
            lines.append(f"  hint: {part.hint}")
        if number < MAX_EXCERPTS:
            lines += (f"  {line}" for line in quote_lines(part))
    if len(parts) > MAX_LISTED:
        lines.append(f"- and {len(parts) - MAX_LISTED} more")
    return "\n".join(lines)


def locate_failure(part: CoilClawError) -> str:
    """Return the sentence of a part, with the line of the answer where it does not name it."""
    line = getattr(part, "line", None)
    if line is None or f"line {line}" in part.message:
        return part.message
    return f"line {line}: {part.message}"


def quote_lines(part: CoilClawError) -> list[str]:
    """Return the nearest lines of the file, if the part has some, with their numbers."""
    near: tuple[NearLine, ...] = getattr(part, "nearest", ())
    if not near:
        return []
    return [
        f"the nearest lines of {shown(getattr(part, 'path', None) or 'the file')} are:",
        *(f"{line.number:>6} | {_visible(line.text)}" for line in near),
    ]


def _visible(text: str) -> str:
    """Escape what a terminal would act on; a tab is part of a line's indentation."""
    return "\t".join(shown(piece)[1:-1] for piece in text[:MAX_CHARS].split("\t"))


def _described(part: CoilClawError, *, excerpt: bool) -> dict[str, object]:
    found: dict[str, object] = {"rule": part.rule, "message": part.message}
    for name in ("path", "line", "index", "hint"):
        if (value := getattr(part, name, None)) is not None:
            found[name] = value
    near: tuple[NearLine, ...] = getattr(part, "nearest", ())
    if near and excerpt:
        found["nearest"] = [{"line": line.number, "text": line.text[:MAX_CHARS]} for line in near]
    return found
