"""The codebase as one text: tracked and unignored files, in a fixed order, within bounds."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import (
    CoilClawError,
    GitFailed,
    PathRefused,
    RegularFile,
    TreePath,
    write_atomic,
)
from coilclaw.policy import CODE_COMMIT_POLICY
from coilclaw.workspace import Git

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from coilclaw.workspace import Root, TreeState

MAX_FILE_BYTES: Final = 2**20
MAX_TOTAL_BYTES: Final = 64 * 2**20
MAX_FILES: Final = 100_000


@dataclass(frozen=True, slots=True)
class Rollup:
    """The text, its files, and the skipped files with the reason."""

    text: str
    files: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...]


def roll_up(root: Root, state: TreeState, key_files: tuple[str, ...] = ()) -> Rollup:
    """Return the text files of a tree as one text."""
    names = sorted(_candidates(root, state))
    pieces: list[str] = []
    taken: list[str] = []
    skipped: list[tuple[str, str]] = []
    total = 0
    for name in names:
        if name.rsplit("/", 1)[-1] in key_files:
            continue
        text, reason = _read(root, name)
        if text is None:
            if reason:
                skipped.append((name, reason))
            continue
        piece = (
            f"--- FILE {name} ---\n{text}{'' if text.endswith(chr(10)) or not text else chr(10)}"
        )
        total += len(piece.encode())
        if total > MAX_TOTAL_BYTES:
            skipped.append((name, f"the roll-up would be larger than {MAX_TOTAL_BYTES:,} bytes"))
            total -= len(piece.encode())
            continue
        pieces.append(piece)
        taken.append(name)
    return Rollup("".join(pieces), tuple(taken), tuple(skipped))


def write(path: Path, rollup: Rollup) -> None:
    """Write the roll-up to a file."""
    write_atomic(path, rollup.text.encode("utf-8"))


def _candidates(root: Root, state: TreeState) -> set[str]:
    state.create()
    walked = set(_walk(root.path))
    ignored = Git(state.git).find_ignored(root.path, sorted(walked))
    return (walked - ignored) | (_list_tracked(root.path) & walked)


def _walk(root: Path) -> Iterator[str]:
    count = 0
    for folder, directories, files in os.walk(root):
        directories[:] = sorted(name for name in directories if name != ".git")
        for name in files:
            count += 1
            if count > MAX_FILES:
                raise GitFailed(f"{root} has more than {MAX_FILES:,} files", rule="rollup.bounds")
            yield os.path.relpath(os.path.join(folder, name), root)


def _list_tracked(root: Path) -> set[str]:
    """Return the files that git tracks; none outside of a repository."""
    git_dir = root / ".git"
    if not git_dir.is_dir():
        return set()
    listed = Git(git_dir).run("ls-files", "-z", work_tree=root, limit_bytes=64 * 2**20)
    return {os.fsdecode(name) for name in listed.split(b"\0") if name}


def _read(root: Root, name: str) -> tuple[str | None, str]:
    """Return the text of a file, or why it is skipped; protected files are skipped silently."""
    try:
        path = TreePath.parse(name)
    except PathRefused as problem:
        return None, problem.message
    if CODE_COMMIT_POLICY.judge(path, ignored=False).denied:
        return None, ""
    try:
        found = root.read(path, limit=MAX_FILE_BYTES)
    except CoilClawError as problem:
        return None, problem.message
    if not isinstance(found, RegularFile):
        return None, "not a regular file"
    if b"\0" in found.content[:8000]:
        return None, "binary"
    try:
        return found.content.decode("utf-8"), ""
    except UnicodeDecodeError:
        return None, "not UTF-8"
