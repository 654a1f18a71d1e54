"""``Worktree``: one worktree for one task, and the records of those that there are."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.errors import EnvironmentFault, LockTimeout
from coilclaw.storage.atomic import read_private, write_atomic
from coilclaw.workspace.guard import guarded
from coilclaw.workspace.owner import Owner
from coilclaw.workspace.repository import configured

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from coilclaw.domain.messages import Json

GUARD_TIMEOUT_S: Final = 3600.0
AGENT: Final = ("CoilClaw agent", "agent@coilclaw.invalid")
"""Who authors what an agent commits."""

_SUFFIX: Final = ".json"
_GUARD: Final = ".guard"
_FORM: Final = 1


@dataclass(frozen=True, slots=True)
class Worktree:
    """A detached worktree; an agent may write in it, in its git directory and its objects."""

    path: Path
    commit: str
    """The baseline: what was checked out, to the byte."""
    git_dir: Path
    """``.git/worktrees/<id>`` of the repository: its own HEAD and index."""
    objects: Path
    """Where what is committed in it goes."""
    shared: Path
    """The objects of the repository, which stay as they are."""

    @property
    def writable(self) -> tuple[Path, ...]:
        """What a sandbox has to let an agent write for git to work in it, and no more."""
        return (self.path, self.git_dir, self.objects)

    @property
    def environ(self) -> dict[str, str]:
        """The variables with which git works in it where it is."""
        return self.environ_at(self.path)

    def environ_at(self, seen_at: Path, repository: Path | None = None) -> dict[str, str]:
        """Return the variables with which git works in it while the repository is read-only.

        ``seen_at`` is where it is found, ``repository`` where the shared git directory is, if not
        at its own path.
        """
        name, email = AGENT
        settings = (
            ("core.hooksPath", "/dev/null"),
            ("core.fsmonitor", "false"),
            ("gc.auto", "0"),
            ("maintenance.auto", "false"),
            ("commit.gpgSign", "false"),
            ("safe.directory", str(seen_at)),
        )
        shared = self.shared if repository is None else repository / self.shared.name
        return {
            "GIT_OBJECT_DIRECTORY": str(self.objects),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted(str(shared)),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            **{f"GIT_{role}_NAME": name for role in ("AUTHOR", "COMMITTER")},
            **{f"GIT_{role}_EMAIL": email for role in ("AUTHOR", "COMMITTER")},
            **configured(settings),
        }


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of a worktree without asking anything that an agent could have written."""

    path: Path
    commit: str
    objects: Path
    owner: Owner
    git_dir: Path | None = None
    """``None``: it was being made, and no agent was let in yet."""


class Records:
    """One file for each worktree, written before it is made and removed after it is gone.

    Whoever writes holds the lock of all worktrees.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, record: Record) -> None:
        document: dict[str, Json] = {
            "form": _FORM,
            "path": str(record.path),
            "commit": record.commit,
            "objects": str(record.objects),
            "git_dir": None if record.git_dir is None else str(record.git_dir),
            "owner": record.owner.json(),
        }
        self._create()
        # Only a kill must not lose it: after a power cut the git directory itself still tells.
        data = json.dumps(document, ensure_ascii=True).encode("ascii")
        write_atomic(self._place(record.path), data, mode=0o600, sync=False)

    def find(self, path: Path) -> Record | None:
        return self._read(self._place(path))

    def all(self) -> Iterator[Record]:
        if not self._directory.is_dir():
            return
        for place in sorted(self._directory.iterdir()):
            if place.name.endswith(_SUFFIX) and (record := self._read(place)) is not None:
                yield record

    def drop(self, path: Path) -> None:
        """Forget a worktree; its guard is held by the one who does."""
        self._place(path).unlink(missing_ok=True)
        self._guard(path).unlink(missing_ok=True)

    def tidy(self) -> None:
        """Remove what a process that was killed did not get to put in place."""
        for place in self._directory.glob(".coilclaw-*"):
            place.unlink(missing_ok=True)
        for place in self._directory.glob(f"*{_GUARD}"):
            if not place.with_suffix(_SUFFIX).exists():
                with suppress(LockTimeout), guarded(place, timeout_s=0.0):
                    place.unlink(missing_ok=True)

    @contextmanager
    def guarded(self, path: Path) -> Iterator[BinaryIO]:
        """Wait until nothing works on a worktree, and hold it."""
        self._create()
        with guarded(self._guard(path), timeout_s=GUARD_TIMEOUT_S) as guard:
            yield guard

    def adopt(self, record: Record) -> Record:
        """Make this process the one that a worktree belongs to."""
        mine = replace(record, owner=Owner.here())
        self.write(mine)
        return mine

    def _create(self) -> None:
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as problem:
            raise EnvironmentFault(
                f"cannot create {self._directory}: {problem.strerror}", rule="file.io"
            ) from problem

    def _place(self, path: Path) -> Path:
        return self._directory / f"{sha256(os.fsencode(path)).hexdigest()[:32]}{_SUFFIX}"

    def _guard(self, path: Path) -> Path:
        return self._place(path).with_suffix(_GUARD)

    def _read(self, place: Path) -> Record | None:
        data = read_private(place)
        if data is None:
            return None
        try:
            value = json.loads(data)
            owner = Owner.of(value["owner"])
            if owner is None or value["form"] != _FORM:
                raise ValueError(place)
            git_dir = None if value["git_dir"] is None else Path(value["git_dir"])
            path, commit = Path(value["path"]), str(value["commit"])
            return Record(path, commit, Path(value["objects"]), owner, git_dir)
        except (ValueError, KeyError, TypeError) as problem:
            raise EnvironmentFault(
                f"{place} is no record of a worktree", rule="worktree.record"
            ) from problem


def _quoted(path: str) -> str:
    """A path in a list that colons separate, in which git also knows comments and C strings."""
    if ":" not in path and not path.startswith(('"', "#")):
        return path
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'
