"""``remove_tree``: take away a directory that an agent may have made hard to take away."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import explain_os_errors, quote_text
from coilclaw.workspace.process.owner import process_exists
from coilclaw.workspace.tree.directory_entry import DIRECTORY, open_entry

if TYPE_CHECKING:
    from pathlib import Path

_BEGIN: Final = ".coilclaw-gone-"
_END: Final = ".tmp"


def remove_tree(path: Path, *, aside_in: Path | None = None) -> None:
    """Remove whatever stands at a path, and everything below it; links are not followed.

    It is moved aside first, beside itself or into another directory of its file system, so that
    nothing half removed is taken for what it was. Directories without permissions are opened up,
    and any depth will do: each directory is moved to the top before its turn comes, so that no path
    gets long.
    """
    what = f"remove {quote_text(str(path))}"
    with explain_os_errors(what, rule="worktree.remove"), suppress(FileNotFoundError):
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)
            return
        aside = (aside_in or path.parent) / f"{_BEGIN}{os.getpid()}-{os.urandom(8).hex()}{_END}"
        os.mkdir(aside, 0o700)
        try:
            # Moving a directory writes the entry for its parent, so it must be writable itself.
            os.chmod(path, 0o700)
            os.rename(path, aside / "0")
            _empty(aside)
        finally:
            # Another process may have been first; what could not be removed keeps it there.
            with suppress(OSError):
                os.rmdir(aside)


def is_remainder(name: str) -> bool:
    """Whether an entry of a directory is what a removal that was killed left behind."""
    if not name.startswith(_BEGIN) or not name.endswith(_END):
        return False
    pid = name.removeprefix(_BEGIN).partition("-")[0]
    return not pid.isdigit() or not process_exists(int(pid))


def sweep_remainders(directory: Path) -> None:
    """Remove what removals that were killed left in a directory."""
    try:
        names = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        if is_remainder(name):
            remove_tree(directory / name)


def _empty(aside: Path) -> None:
    """Remove the numbered directories of a directory, and those that they turn out to hold."""
    root = os.open(aside, DIRECTORY)
    try:
        done, waiting = 0, 1
        while done < waiting:
            with open_entry(root, str(done), DIRECTORY) as directory:
                with os.scandir(directory) as entries:
                    found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
                for name, is_directory in found:
                    if is_directory:
                        os.chmod(name, 0o700, dir_fd=directory)
                        os.rename(name, str(waiting), src_dir_fd=directory, dst_dir_fd=root)
                        waiting += 1
                    else:
                        os.unlink(name, dir_fd=directory)
            os.rmdir(str(done), dir_fd=root)
            done += 1
    finally:
        os.close(root)
