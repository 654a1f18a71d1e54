"""Bundles: the repository of a trajectory in portable form, current after every checkpoint.

Each checkpoint gets a piece with what is new in it, which builds on the one before; at the end they
are one file. Both give the same commits.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import EnvironmentFault, explain_os_errors, sync_data, sync_directory
from coilclaw.traces.trajectory.checkpoints import BRANCH
from coilclaw.workspace import Git

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

TIMEOUT_S: Final = 3600.0
MAX_LISTING_BYTES: Final = 2**28
_PIECE: Final = re.compile(r"([0-9]{1,12})(?:-turn([0-9]{1,12}))?\.bundle")


def piece_name(part: int, turn: int | None = None) -> str:
    """Return the name of the piece of a part; part 0 is what the agent was given.

    With ``turn`` that of the end of a turn, at which more had changed than its last part said.
    """
    return f"{part}.bundle" if turn is None else f"{part}-turn{turn}.bundle"


def write_piece(git: Git, path: Path, previous: str | None) -> None:
    """Bundle what the branch gained since a commit; ``None``: everything."""
    since = () if previous is None else (f"^{previous}",)
    _create(git, path, BRANCH, *since)


def write_whole(git: Git, path: Path) -> None:
    """Bundle all branches, with a HEAD, so that a plain clone checks the end out."""
    _create(git, path, "HEAD", "--branches")


def pieces(directory: Path) -> tuple[Path, ...]:
    """Return the pieces of a directory in the order in which they build on each other."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return ()
    found = [(part_of(name), name) for name in names if _PIECE.fullmatch(name)]
    return tuple(directory / name for _, name in sorted(found))


def is_piece(name: str) -> bool:
    """Return whether a file of this name is a piece."""
    return _PIECE.fullmatch(name) is not None


def part_of(name: str) -> tuple[int, int]:
    """Return the part and the turn of a piece; 0 for a turn that is not named."""
    match = _PIECE.fullmatch(name)
    assert match is not None, "only pieces are asked about"
    return int(match[1]), int(match[2] or 0)


def assemble(bundles: Iterable[Path], git_dir: Path) -> Git:
    """Unpack bundles, in order, into a new bare repository with their branches."""
    git = Git(git_dir)
    git.create()
    for bundle in bundles:
        if not bundle.is_file():
            raise EnvironmentFault(f"the bundle {bundle} does not exist", rule="bundle.missing")
        said = git.run(
            *("bundle", "unbundle", str(bundle.absolute())),
            timeout_s=TIMEOUT_S,
            limit_bytes=MAX_LISTING_BYTES,
        )
        for line in said.decode("utf-8", "replace").splitlines():
            commit, _, ref = line.partition(" ")
            if ref.startswith("refs/heads/"):
                git.run("update-ref", ref, commit)
                # Cloning or bundling it again needs a HEAD.
                git.run("symbolic-ref", "HEAD", ref)
    return git


def commits(git: Git) -> frozenset[str]:
    """Return every commit that a branch leads to; raise if an object of one is missing."""
    git.run("rev-list", "--objects", "--quiet", "--branches", timeout_s=TIMEOUT_S)
    said = git.run("rev-list", "--branches", timeout_s=TIMEOUT_S, limit_bytes=MAX_LISTING_BYTES)
    return frozenset(said.decode("ascii").split())


def _create(git: Git, path: Path, *what: str) -> None:
    with explain_os_errors(f"write {path}", rule="bundle.write"):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # One that was killed leaves its lock behind; the trajectory has one writer.
        path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
    git.run("bundle", "create", "--quiet", str(path.absolute()), *what, timeout_s=TIMEOUT_S)
    # The objects themselves are not synced one by one: this file is what a power cut must leave.
    with path.open("rb") as file:
        sync_data(file.fileno())
    sync_directory(path.parent)
