"""``init --repo``: what runs need in a repository. It can be repeated, and overwrites nothing."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.app import hooks
from coilclaw.app.runwiring import places_of
from coilclaw.contracts.policyset import FOLDER, PolicySet, shipped_files
from coilclaw.errors import EnvironmentFault, UsageError
from coilclaw.orchestrator.places import RUNTIME_ROOT
from coilclaw.storage.atomic import write_atomic
from coilclaw.workspace.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from coilclaw.orchestrator.places import Places

IGNORED: Final = f"/{RUNTIME_ROOT.partition('/')[0]}/"
MAX_IGNORE_BYTES: Final = 2**22


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that is there now, and whether it was made."""

    what: str
    path: Path
    made: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Wishes:
    """How a repository is set up."""

    exclude: bool = False
    """Whether the ignore line goes where only this clone sees it."""
    hooks: bool = True


def set_up(start: Path, environ: Mapping[str, str], wishes: Wishes) -> tuple[Item, ...]:
    """Make what is missing; return everything, in order."""
    repository = Repository.open(start)
    places = places_of(repository.top, environ)
    try:
        items = [
            *_folders(places),
            *_ignore(repository, places, exclude=wishes.exclude),
            *_policies(repository),
        ]
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot make {problem.filename}: {problem.strerror}", rule="init.repository"
        ) from problem
    if wishes.hooks:
        for change in hooks.install(repository, environ):
            before = "what was there runs first" if change.chained else ""
            made = change.done != "unchanged"
            items.append(Item(f"{change.name} hook", change.path, made, before))
    return tuple(items)


def _folders(places: Places) -> Iterator[Item]:
    there = places.runtime.is_dir()
    for folder in (places.runs, places.worktrees, places.locks):
        folder.mkdir(parents=True, exist_ok=True)
    yield Item("runtime root", places.runtime, made=not there)


def _ignore(repository: Repository, places: Places, *, exclude: bool) -> Iterator[Item]:
    """Have git ignore the runtime root, where it lies in the tree and is not ignored yet."""
    top = repository.top
    if not places.runtime.is_relative_to(top):
        return
    inside = places.runtime.relative_to(top).as_posix()
    file = repository.common_dir / "info" / "exclude" if exclude else top / ".gitignore"
    said = repository.git.answer(
        "check-ignore", "--no-index", "-q", "--", f"{inside}/runs", work_tree=top, accept=(0, 1)
    )
    if said.exit_code == 0:
        yield Item("ignore line", file, made=False, detail="the runtime root is ignored")
        return
    line = IGNORED if inside == RUNTIME_ROOT else f"/{inside}/"
    file.parent.mkdir(parents=True, exist_ok=True)
    old, mode = b"", 0o644
    if os.path.lexists(file):
        status = os.lstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_IGNORE_BYTES:
            raise UsageError(
                f"{file} is no file that a line can be added to",
                rule="init.ignore",
                hint="--exclude puts the line where only this clone sees it",
            )
        old, mode = file.read_bytes(), stat.S_IMODE(status.st_mode)
    glue = b"" if not old or old.endswith(b"\n") else b"\n"
    write_atomic(file, old + glue + line.encode() + b"\n", mode=mode)
    yield Item("ignore line", file, made=True, detail=line)


def _policies(repository: Repository) -> Iterator[Item]:
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
        made += _create(place, data)
    PolicySet.of({name: (folder / name).read_bytes() for name in shipped_files()})
    yield Item("policies", folder, made=made > 0, detail=f"{made} files" if made else "")


def _create(place: Path, data: bytes) -> bool:
    """Make a file unless there is anything of that name."""
    if os.path.lexists(place):
        return False
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return True
