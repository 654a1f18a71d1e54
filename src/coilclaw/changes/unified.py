"""A plan as a unified diff, for people and for records."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from coilclaw.domain.files import FileState, RegularFile, Symlink

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.changes.plan import FileChange, Plan

CONTEXT_LINES: Final = 3
MAX_DIFF_LINES: Final = 20_000
"""Changed regions larger than this on one side are shown as removed and added whole."""

Action = Literal["create", "modify", "delete", "mode"]


@dataclass(frozen=True, slots=True)
class Summary:
    """One path of a plan in figures."""

    path: str
    action: Action
    added: int
    removed: int
    binary: bool


def action(change: FileChange) -> Action:
    """Name what happens to a path."""
    if change.before is None:
        return "create"
    if change.after is None:
        return "delete"
    same = _body(change.before) == _body(change.after) and type(change.before) is type(change.after)
    return "mode" if same else "modify"


def diff(plan: Plan) -> Iterator[str]:
    """Yield the lines of the diff, each without its newline."""
    for change in plan.changes:
        yield from _file(change)


def summarise(plan: Plan) -> tuple[Summary, ...]:
    """Count added and removed lines per path."""
    rows = []
    for change in plan.changes:
        binary = _binary(change)
        marks = [] if binary else [line[:1] for line in _hunks(change)]
        rows.append(
            Summary(str(change.path), action(change), marks.count("+"), marks.count("-"), binary)
        )
    return tuple(rows)


def _file(change: FileChange) -> Iterator[str]:
    path = str(change.path)
    yield f"diff --git a/{path} b/{path}"
    old, new = _mode(change.before), _mode(change.after)
    if old is None:
        yield f"new file mode {new}"
    elif new is None:
        yield f"deleted file mode {old}"
    elif old != new:
        yield f"old mode {old}"
        yield f"new mode {new}"
    if _binary(change):
        old_name, new_name = _name("a", change.before, path), _name("b", change.after, path)
        yield f"Binary files {old_name} and {new_name} differ"
        return
    body = list(_hunks(change))
    if body:
        yield f"--- {_name('a', change.before, path)}"
        yield f"+++ {_name('b', change.after, path)}"
        yield from body


def _name(side: str, state: FileState, path: str) -> str:
    return "/dev/null" if state is None else f"{side}/{path}"


def _mode(state: FileState) -> str | None:
    if state is None:
        return None
    if isinstance(state, Symlink):
        return "120000"
    return "100755" if state.executable else "100644"


def _body(state: FileState) -> bytes:
    if isinstance(state, RegularFile):
        return state.content
    return state.target if isinstance(state, Symlink) else b""


def _binary(change: FileChange) -> bool:
    for body in (_body(change.before), _body(change.after)):
        if b"\0" in body[:8000]:
            return True
        try:
            body.decode("utf-8")
        except UnicodeDecodeError:
            return True
    return False


def _hunks(change: FileChange) -> Iterator[str]:
    old = _split(_body(change.before))
    new = _split(_body(change.after))
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    if head == len(old) == len(new):
        return
    # Only the middle is compared: matched with the middle, a line of its context could leave a hunk
    # without context at its end, which git takes for the end of the file.
    left, right = old[head : len(old) - tail], new[head : len(new) - tail]
    if len(left) > MAX_DIFF_LINES or len(right) > MAX_DIFF_LINES:
        yield from _whole(old, new, head, tail)
        return
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=len(left) > 500)
    before, after = min(head, CONTEXT_LINES), min(tail, CONTEXT_LINES)
    middle = ((tag, *(at + head for at in ends)) for tag, *ends in matcher.get_opcodes())
    ends = (len(old) - tail, len(new) - tail)
    matcher.opcodes = [  # type: ignore[attr-defined]  # what get_grouped_opcodes groups
        *([("equal", head - before, head, head - before, head)] if before else []),
        *middle,
        *([("equal", ends[0], ends[0] + after, ends[1], ends[1] + after)] if after else []),
    ]
    for group in matcher.get_grouped_opcodes(CONTEXT_LINES):
        yield _header(group[0][1], group[-1][2], group[0][3], group[-1][4])
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                yield from _marked(" ", old[i1:i2])
                continue
            yield from _marked("-", old[i1:i2])
            yield from _marked("+", new[j1:j2])


def _whole(old: list[str], new: list[str], head: int, tail: int) -> Iterator[str]:
    start, keep = max(0, head - CONTEXT_LINES), min(tail, CONTEXT_LINES)
    stop, end = len(old) - tail, len(new) - tail
    yield _header(start, stop + keep, start, end + keep)
    yield from _marked(" ", old[start:head])
    yield from _marked("-", old[head:stop])
    yield from _marked("+", new[head:end])
    yield from _marked(" ", old[stop : stop + keep])


def _header(old_from: int, old_to: int, new_from: int, new_to: int) -> str:
    return f"@@ -{_range(old_from, old_to)} +{_range(new_from, new_to)} @@"


def _range(start: int, stop: int) -> str:
    length = stop - start
    first = start + 1 if length else start
    return str(first) if length == 1 else f"{first},{length}"


def _marked(mark: str, lines: list[str]) -> Iterator[str]:
    for line in lines:
        if line.endswith("\n"):
            yield mark + line[:-1]
        else:
            yield mark + line
            yield "\\ No newline at end of file"


def _split(body: bytes) -> list[str]:
    lines = body.decode("utf-8").split("\n")
    last = lines.pop()
    split = [line + "\n" for line in lines]
    return [*split, last] if last else split
