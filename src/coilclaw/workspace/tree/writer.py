"""The writer: puts a plan into the tree, wholly or not at all.

1. Under the tree's lock, an interrupted change is repaired first.
2. ``pending`` names the change as *staging*; the change is kept, old and new contents, synced.
3. All new contents are staged beside their places and synced; every preimage is checked again.
4. ``pending`` says *committed*: from here the change is finished, whatever happens.
5. Each place is looked at once more and then taken; directories are synced; the change is recorded;
   ``pending`` goes.

A crash before 4 leaves nothing but staged files, which the next command removes. A crash after 4
is finished by the next command. An error or a signal takes the change back at once.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from coilclaw.kernel import (
    CoilClawError,
    DeniedError,
    EnvironmentFault,
    FileLock,
    Obstacle,
    PlanRefused,
    RegularFile,
    Stopped,
    write_atomic,
)
from coilclaw.workspace.tree import recovery
from coilclaw.workspace.tree.changelog import Change, Changelog, write_change
from coilclaw.workspace.tree.placement import Placement, lies_below, list_parents

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from coilclaw.changes import Plan
    from coilclaw.kernel import TreePath
    from coilclaw.workspace.tree.placement import Parts, Signature, Staged
    from coilclaw.workspace.tree.root import Root
    from coilclaw.workspace.tree.state import TreeState


@dataclass(frozen=True, slots=True)
class Purpose:
    """Why a plan is applied, for the record."""

    origin: str
    group: str = ""
    undoes: tuple[str, ...] = ()
    change_id: str = ""
    """The id that the change is to get, where it was promised before."""


def new_change_id(now: datetime, token: str) -> str:
    """Name a change by its time and a random word."""
    return f"{now:%Y%m%d-%H%M%S}-{token}"


@dataclass(frozen=True, slots=True)
class Extent:
    """What a plan's paths and bytes do not say."""

    removable: Container[Parts] | None = None
    """Directories that lose their last file go too, but no others than these if given."""
    modes: Mapping[TreePath, int] = field(default_factory=dict)
    """Permission bits that a file is to get."""
    make: Mapping[Parts, int | None] = field(default_factory=dict)
    """Directories to make besides, and their bits where known."""
    remove: tuple[Parts, ...] = ()
    """Empty directories to remove besides."""

    @property
    def empty(self) -> bool:
        return not self.make and not self.remove


@dataclass(frozen=True, slots=True)
class Writer:
    """Applies plans to one open tree."""

    root: Root
    state: TreeState
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    token: Callable[[], str] = lambda: secrets.token_hex(3)

    def apply(self, plan: Plan, purpose: Purpose, extent: Extent | None = None) -> Change:
        """Put the plan into the tree; raise, with the tree as it was, when that cannot be done."""
        extent = extent or Extent()
        if not plan.changes and extent.empty:
            raise PlanRefused("the plan changes nothing", rule="plan.empty")
        if self.state.tree.is_relative_to(self.state.home.resolve()):
            raise DeniedError(f"{self.state.tree} is state of CoilClaw", rule="protected.state")
        self.state.create()
        with FileLock(self.state.lock):
            recovery.recover(self.root, self.state)
            return self._apply(plan, purpose, extent)

    def _apply(self, plan: Plan, purpose: Purpose, extent: Extent) -> Change:
        now = self.now()
        change_id = purpose.change_id or new_change_id(now, self.token())
        placement = Placement(self.root, change_id)
        old = {i.path: placement.mode(i.path) for i in plan.changes if i.before is not None}
        taken = {i.path: placement.mode(i.like) for i in plan.changes if i.like is not None}
        changelog = Changelog(self.state)
        changelog.ready()
        self._recheck(plan, placement, extent)
        kept = Change(
            change_id,
            now.isoformat(timespec="milliseconds"),
            purpose.origin,
            purpose.group,
            purpose.undoes,
            (),
            placement.list_missing(plan, extent.make),
            placement.list_emptied(plan, extent.removable, extent.remove),
        )
        mark(self.root, self.state, change_id, "staging")
        try:
            folder = self.state.changes / change_id
            change = write_change(folder, kept, plan, old, extent.modes)
            modes = old | {path: mode for path, mode in taken.items() if mode is not None}
            modes.update(extent.modes)
            staged = [
                placement.stage(index, item.path, item.after, modes.get(item.path))
                for index, item in enumerate(plan.changes)
                if item.after is not None
            ]
            signatures = self._recheck(plan, placement, extent)
            mark(self.root, self.state, change_id, "committed")
        except BaseException as problem:
            recovery.abandon(self.root, self.state, change_id)
            _explain("the change could not be prepared", problem)
            raise
        try:
            _install(change, plan, staged, placement, signatures, extent)
            changelog.append(change)
        except BaseException as problem:
            kept_by = recovery.roll_back(self.root, self.state, change).kept
            _explain("the change failed while it was applied", problem, kept_by)
            raise
        recovery.unmark(self.state)
        return change

    def _recheck(
        self, plan: Plan, placement: Placement, extent: Extent
    ) -> dict[TreePath, Signature | None]:
        """Refuse when a file is not what the plan was made for; say what was there."""
        vacated = list_parents(item.path for item in plan.changes if item.after is None)
        vacated |= frozenset(extent.remove)
        files = frozenset(item.path.parts for item in plan.changes if item.before is not None)
        signatures: dict[TreePath, Signature | None] = {}
        changed: list[str] = []
        for item in plan.changes:
            if item.before is None and lies_below(item.path, files):
                # Below a file or a link that the plan itself removes stands nothing yet.
                signatures[item.path] = None
                continue
            signatures[item.path] = placement.signature(item.path)
            size = len(item.before.content) if isinstance(item.before, RegularFile) else 0
            found = self.root.read(item.path, limit=size + 2**20)
            # A directory that the plan itself empties makes room for a file of its name.
            room = item.path.parts in vacated and found == Obstacle("directory")
            if room:
                signatures[item.path] = None
            elif found != item.before:
                changed.append(str(item.path))
        if changed:
            raise _changed_error(*changed)
        return signatures


def _install(
    change: Change,
    plan: Plan,
    staged: list[Staged],
    placement: Placement,
    signatures: Mapping[TreePath, Signature | None],
    extent: Extent,
) -> None:
    """Removals come first, so that a directory may become a file and a file a directory."""
    for item in plan.changes:
        if item.after is None:
            if placement.signature(item.path) != signatures[item.path]:
                raise _changed_error(str(item.path))
            placement.remove(item.path)
    for parts, _ in reversed(change.emptied):
        placement.remove_directory(parts)
    for each in staged:
        if placement.signature(each.path) != signatures[each.path]:
            raise _changed_error(str(each.path))
        placement.install(each, extent.make)
    placement.make_directories(extent.make, extent.make)
    placement.sync()


def mark(
    root: Root, state: TreeState, change_id: str, phase: Literal["staging", "committed"]
) -> None:
    """Say on disk which change is under way, in which directory, and how far it is."""
    info = os.fstat(root.fd)
    record = {"id": change_id, "phase": phase, "tree": [info.st_dev, info.st_ino]}
    write_atomic(state.pending, json.dumps(record).encode("ascii") + b"\n", mode=0o600)


def _changed_error(*paths: str) -> PlanRefused:
    return PlanRefused(
        f"changed since the plan was made: {', '.join(paths[:10])}",
        rule="plan.changed",
        path=paths[0],
        hint="run the command again",
    )


def _explain(what: str, problem: BaseException, kept: tuple[str, ...] = ()) -> None:
    """Raise an error that also says what became of the tree; return for what says it itself."""
    if isinstance(problem, PlanRefused):
        raise PlanRefused(
            problem.message, rule=problem.rule, path=problem.path, hint=problem.hint
        ) from problem
    tree = f"all but {', '.join(kept)} was taken back" if kept else "the tree is as it was"
    if isinstance(problem, KeyboardInterrupt):
        raise Stopped(f"stopped; {tree}") from problem
    if isinstance(problem, OSError | CoilClawError):
        reason = (problem.strerror if isinstance(problem, OSError) else str(problem)) or problem
        raise EnvironmentFault(f"{what}, {tree}: {reason}", rule="tree.write") from problem
