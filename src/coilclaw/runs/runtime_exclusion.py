"""The ignore line of the runtime root, so that git never lists it as untracked."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import CoilClawError, UsageError, explain_os_errors, write_atomic
from coilclaw.runs.evidence.layout import RUNTIME_ROOT, RunPlaces

if TYPE_CHECKING:
    from pathlib import Path

    from coilclaw.workspace import Repository

IGNORED: Final = f"/{RUNTIME_ROOT.partition('/')[0]}/"
IGNORE_FILE: Final = ".gitignore"
MAX_IGNORE_BYTES: Final = 2**22
_SPECIAL: Final = re.compile(r"([\\*?\[ ])")


@dataclass(frozen=True, slots=True)
class IgnoreLine:
    """The line, the file that it belongs into, and whether it was added now."""

    file: Path
    line: str
    added: bool


def exclude_runtime_root(repository: Repository, places: RunPlaces) -> str:
    """Make this clone ignore the runtime root; return why it cannot, or an empty text.

    A run does not depend on it, so a file that cannot be written does not refuse one.
    """
    try:
        found = add_ignore_line(repository, places, exclude=True)
    except CoilClawError as problem:
        return f"git will list {places.runtime} as untracked: {problem.message}"
    if found is not None and not is_ignored(repository, places):
        return (
            f"git will list {places.runtime} as untracked: {found.file} has the line {found.line}, "
            "and a .gitignore takes it back"
        )
    return ""


def add_ignore_line(
    repository: Repository, places: RunPlaces, *, exclude: bool
) -> IgnoreLine | None:
    """Add the line unless a rule covers the runtime root; ``None`` if git never looks at it.

    It goes into ``.gitignore``, or with ``exclude`` into the file that all worktrees of this clone
    share. Raise where that file cannot be added to.
    """
    top, runtime = repository.top, places.runtime
    if not runtime.is_relative_to(top) or runtime == top:
        return None
    if runtime.is_relative_to(repository.git_dir) or runtime.is_relative_to(repository.common_dir):
        return None
    file = repository.common_dir / "info" / "exclude" if exclude else top / IGNORE_FILE
    inside = runtime.relative_to(top).as_posix()
    line = IGNORED if inside == RUNTIME_ROOT else _escape_path(inside)
    if is_ignored(repository, places):
        return IgnoreLine(file, line, added=False)
    with explain_os_errors(f"add {line} to {file}", rule="init.ignore"):
        return IgnoreLine(file, line, added=_append_line(file, line))


def is_ignored(repository: Repository, places: RunPlaces) -> bool:
    """Return whether a rule of the repository covers the runtime root."""
    inside = places.runs.relative_to(repository.top).as_posix()
    said = repository.git.answer(
        *("check-ignore", "--no-index", "-q", "--", inside), work_tree=repository.top, accept=(0, 1)
    )
    return said.exit_code == 0


def _escape_path(inside: str) -> str:
    """Escape a path so that git reads no pattern in it."""
    if "\n" in inside:
        raise UsageError("no ignore rule can name a path with a line end", rule="init.ignore")
    return "/" + _SPECIAL.sub(r"\\\1", inside) + "/"


def _append_line(file: Path, line: str) -> bool:
    """Append a line to a file; return whether it was missing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    old, mode = b"", 0o644
    if os.path.lexists(file):
        status = os.lstat(file)
        mode = stat.S_IMODE(status.st_mode)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_IGNORE_BYTES:
            raise UsageError(
                f"{file} is not a file that the line {line} can be added to",
                rule="init.ignore",
                hint="--exclude puts the line where only this clone sees it",
            )
        # A rename would replace a read-only file too, which its owner does not want.
        if not mode & stat.S_IWUSR:
            raise UsageError(
                f"{file} is read-only, so the line {line} was not added",
                rule="init.ignore",
                hint=f"add the line {line} to it",
            )
        old = file.read_bytes()
    data = os.fsencode(line)
    if data in old.splitlines():
        return False
    glue = b"" if not old or old.endswith(b"\n") else b"\n"
    write_atomic(file, old + glue + data + b"\n", mode=mode)
    return True
