"""A plan as a unified diff, for people and for records."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from coilclaw.kernel import FileState, RegularFile, Symlink

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.changes.operations import PathChange, Plan

CONTEXT_LINES: Final = 3
MAX_DIFF_LINES: Final = 20_000
"""Changed regions larger than this on one side are shown as removed and added whole."""

Action = Literal["create", "modify", "delete", "mode"]


@dataclass(frozen=True, slots=True)
class ChangeSummary:
    """One path of a plan in figures."""

    path: str
    action: Action
    added: int
    removed: int
    binary: bool


def name_action(change: PathChange) -> Action:
    """Name what happens to a path."""
    if change.before is None:
        return "create"
    if change.after is None:
        return "delete"
    same = _body(change.before) == _body(change.after) and type(change.before) is type(change.after)
    return "mode" if same else "modify"


def diff_plan(plan: Plan) -> Iterator[str]:
    """Yield the lines of the diff, each without its newline."""
    for change in plan.changes:
        yield from _file(change)


def summarise_plan(plan: Plan) -> tuple[ChangeSummary, ...]:
    """Count added and removed lines per path."""
    rows = []
    for change in plan.changes:
        binary = _is_binary(change)
        marks = [] if binary else [line[:1] for line in _hunks(change)]
        added, removed = marks.count("+"), marks.count("-")
        rows.append(ChangeSummary(str(change.path), name_action(change), added, removed, binary))
    return tuple(rows)


def _file(change: PathChange) -> Iterator[str]:
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
    before = "/dev/null" if old is None else f"a/{path}"
    after = "/dev/null" if new is None else f"b/{path}"
    if _is_binary(change):
        yield f"Binary files {before} and {after} differ"
    elif body := list(_hunks(change)):
        yield from (f"--- {before}", f"+++ {after}", *body)


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


def _is_binary(change: PathChange) -> bool:
    bodies = (_body(change.before), _body(change.after))
    try:
        return any(b"\0" in body[:8000] or body.decode("utf-8") is None for body in bodies)
    except UnicodeDecodeError:
        return True


def _hunks(change: PathChange) -> Iterator[str]:
    old, new = _split(_body(change.before)), _split(_body(change.after))
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
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=len(left) > 500)
    middle = [("replace", 0, len(left), 0, len(right))]
    if max(len(left), len(right)) <= MAX_DIFF_LINES:
        middle = [*matcher.get_opcodes()]
    before, after = min(head, CONTEXT_LINES), min(tail, CONTEXT_LINES)
    ends = (len(old) - tail, len(new) - tail)
    matcher.opcodes = [  # type: ignore[attr-defined]  # what get_grouped_opcodes groups
        *([("equal", head - before, head, head - before, head)] if before else []),
        *((tag, *(at + head for at in spans)) for tag, *spans in middle),
        *([("equal", ends[0], ends[0] + after, ends[1], ends[1] + after)] if after else []),
    ]
    for group in matcher.get_grouped_opcodes(CONTEXT_LINES):
        old_range = _range(group[0][1], group[-1][2])
        yield f"@@ -{old_range} +{_range(group[0][3], group[-1][4])} @@"
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                yield from _mark(" ", old[i1:i2])
            else:
                yield from _mark("-", old[i1:i2])
                yield from _mark("+", new[j1:j2])


def _range(start: int, stop: int) -> str:
    length = stop - start
    first = start + 1 if length else start
    return str(first) if length == 1 else f"{first},{length}"


def _mark(mark: str, lines: list[str]) -> Iterator[str]:
    for line in lines:
        yield mark + line.removesuffix("\n")
        if not line.endswith("\n"):
            yield "\\ No newline at end of file"


def _split(body: bytes) -> list[str]:
    *lines, last = body.decode("utf-8").split("\n")
    return [*(f"{line}\n" for line in lines), *([last] if last else [])]
