"""What is told of an answer that does not fit: every part, its place and the nearest lines."""

from __future__ import annotations

from collections import Counter
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import NearLine, quote_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coilclaw.kernel import CoilClawError


MAX_SHOWN: Final = 12
"""Lines of a file that one refusal shows."""
MAX_CHARS: Final = 160
"""Characters of a line that are compared, and that are shown."""
MAX_KEPT: Final = 4096
"""Characters of a line that are kept until keys are taken out of it."""
MAX_FILE_BYTES: Final = 2**20
"""How much of a file is looked at."""

_MAX_LINES: Final = 20_000
_MAX_WANTED: Final = 40
_MAX_COMPARED: Final = 4_000
"""Lines of a file that are compared letter by letter,"""
_MAX_PROBES: Final = 3
"""with so many lines of those that are looked for."""
_ALIKE: Final = 0.4


def nearest_lines(
    text: bytes, wanted: Sequence[bytes], stated: int | None = None
) -> tuple[NearLine, ...]:
    """Return the part of a text that is most like some lines, with numbers; bounded, maybe empty.

    Where nothing is like them, it is the part at the line that was stated, if one was.
    """
    rows = [_clean(row) for row in text[:MAX_FILE_BYTES].split(b"\n", _MAX_LINES)[:_MAX_LINES]]
    if rows and not rows[-1]:
        rows.pop()
    lines = [_clean(line) for line in wanted[:_MAX_WANTED]]
    votes: Counter[int] = Counter()
    for start, weight in (*_equal(rows, lines), *_similar(rows, lines)):
        votes[start] += weight
    if votes:
        aim = (stated or 1) - 1
        start = max(votes, key=lambda at: (votes[at], -abs(at - aim)))
    elif stated is not None and 0 < stated <= len(rows):
        start = stated - 1
    else:
        return ()
    first = max(start, 0)
    stop = min(max(start + len(lines), first + 1), first + MAX_SHOWN, len(rows))
    return tuple(NearLine(at + 1, rows[at][:MAX_KEPT]) for at in range(first, stop))


def _clean(row: bytes) -> str:
    return row.removesuffix(b"\r").decode("utf-8", "replace")


def _equal(rows: list[str], lines: list[str]) -> Iterator[tuple[int, int]]:
    """Yield where the lines would start, for each of them that is there but for its blanks."""
    places: dict[str, list[int]] = {}
    for at, line in enumerate(lines):
        if line.strip():
            places.setdefault(line.strip(), []).append(at)
    for number, row in enumerate(rows):
        for at in places.get(row.strip(), ()):
            yield number - at, 100


def _similar(rows: list[str], lines: list[str]) -> Iterator[tuple[int, int]]:
    """Yield where the lines would start, for the longest of them that have something like them."""
    probes = sorted(
        (at for at, line in enumerate(lines) if line.strip()),
        key=lambda at: -len(lines[at].strip()),
    )
    for at in probes[:_MAX_PROBES]:
        probe = SequenceMatcher(None, "", lines[at].strip()[:MAX_CHARS], autojunk=False)
        for number, row in enumerate(rows[:_MAX_COMPARED]):
            bare = row.strip()[:MAX_CHARS]
            if not bare or bare == lines[at].strip():
                continue
            probe.set_seq1(bare)
            if probe.real_quick_ratio() >= _ALIKE and probe.quick_ratio() >= _ALIKE:
                ratio = probe.ratio()
                if ratio >= _ALIKE:
                    yield number - at, round(90 * ratio)


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
        _describe_part(part, excerpt=number < MAX_EXCERPTS)
        for number, part in enumerate(list_failures(problem)[:MAX_LISTED])
    ]


def explain_failures(problem: CoilClawError) -> str:
    """Return all failing parts as text for the model that writes the answer again."""
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
        f"the nearest lines of {quote_text(getattr(part, 'path', None) or 'the file')} are:",
        *(f"{line.number:>6} | {_visible(line.text)}" for line in near),
    ]


def _visible(text: str) -> str:
    """Escape what a terminal would act on; a tab is part of a line's indentation."""
    return "\t".join(quote_text(piece)[1:-1] for piece in text[:MAX_CHARS].split("\t"))


def _describe_part(part: CoilClawError, *, excerpt: bool) -> dict[str, object]:
    found: dict[str, object] = {"rule": part.rule, "message": part.message}
    for name in ("path", "line", "index", "hint"):
        if (value := getattr(part, name, None)) is not None:
            found[name] = value
    near: tuple[NearLine, ...] = getattr(part, "nearest", ())
    if near and excerpt:
        found["nearest"] = [{"line": line.number, "text": line.text[:MAX_CHARS]} for line in near]
    return found
