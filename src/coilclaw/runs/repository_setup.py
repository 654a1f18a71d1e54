"""``init --repo``: what runs need in a repository. It can be repeated, and overwrites nothing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coilclaw.kernel import EnvironmentFault, UsageError
from coilclaw.runs import hooks
from coilclaw.runs.contracts.policy_set import FOLDER, PolicySet, shipped_files
from coilclaw.runs.hook_check import find_hook_places
from coilclaw.runs.orchestrator import find_run_places
from coilclaw.runs.runtime_exclusion import IGNORE_FILE, add_ignore_line
from coilclaw.workspace import Repository

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class RepositoryItem:
    """One thing that is there now, and whether it was made."""

    what: str
    path: Path
    made: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SetupOptions:
    """How a repository is set up."""

    exclude: bool = False
    """Whether the ignore line goes where only this clone sees it."""
    hooks: bool = False
    strict: bool = False
    """Whether the hooks refuse everything while no contract is active."""


def set_up_repository(
    start: Path, environ: Mapping[str, str], options: SetupOptions
) -> tuple[RepositoryItem, ...]:
    """Make what is missing; return everything, in order."""
    repository = Repository.open(start)
    places = find_run_places(repository.top, environ)
    try:
        there = places.runtime.is_dir()
        for folder in (places.runs, places.worktrees, places.locks):
            folder.mkdir(parents=True, exist_ok=True)
        items = [RepositoryItem("runtime root", places.runtime, made=not there)]
        # git ignores the runtime root, where it lies in the tree and is not ignored yet.
        found = add_ignore_line(repository, places, exclude=options.exclude)
        if found is not None:
            detail = found.line if found.added else "ignored already"
            place = found.file if found.added else places.runtime
            items.append(RepositoryItem("ignore line", place, found.added, detail))
        items.append(_copy_policies(repository))
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot make {problem.filename}: {problem.strerror}", rule="init.repository"
        ) from problem
    if options.hooks:
        for change in hooks.install(repository, environ, strict=options.strict):
            before = "what was there runs first" if change.chained else ""
            made = change.done != "unchanged"
            items.append(RepositoryItem(f"{change.name} hook", change.path, made, before))
    return tuple(items)


@dataclass(frozen=True, slots=True)
class Uncommitted:
    """What of a set-up is not committed yet."""

    top: Path
    paths: tuple[str, ...]
    """Relative to the top of the worktree."""
    refused: bool
    """Whether the hooks that are installed would refuse the commit."""


def find_uncommitted(start: Path, environ: Mapping[str, str]) -> Uncommitted:
    """Return which of the files that ``set_up_repository`` makes differ from HEAD."""
    repository = Repository.open(start)
    listing = repository.git.run(
        *("status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=normal", "--"),
        *(IGNORE_FILE, FOLDER),
        work_tree=repository.top,
    )
    changed = {os.fsdecode(row[3:]).partition("/")[0] for row in listing.split(b"\0") if row}
    ours = [
        one for one in hooks.status(repository, environ) if one.state in {"installed", "outdated"}
    ]
    strict = any(one.strict for one in ours)
    refused = bool(ours) and find_hook_places(start, environ, strict=strict) is not None
    return Uncommitted(repository.top, tuple(sorted(changed)), refused)


def _copy_policies(repository: Repository) -> RepositoryItem:
    """Copy the policies that are not there; those that are there stay as they are."""
    folder = repository.top / FOLDER
    made = 0
    for name, data in shipped_files().items():
        place = folder / name
        for above in (folder, place.parent):
            if above.is_symlink():
                raise UsageError(
                    f"{above} is a link, so the policies would not stay in the repository",
                    rule="init.policies",
                )
        place.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(place):
            continue
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        made += 1
    PolicySet.of({name: (folder / name).read_bytes() for name in shipped_files()})
    return RepositoryItem("policies", folder, made=made > 0, detail=f"{made} files" if made else "")
