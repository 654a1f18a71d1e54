"""The writer: puts a plan into the tree, wholly or not at all.

1. Under the tree's lock, an interrupted change is repaired first.
2. ``pending`` names the change as *staging*; the change is kept, old and new contents, synced.
3. All new contents are staged beside their places and synced; every preimage is checked again.
4. ``pending`` says *committed*: from here the change is finished, whatever happens.
5. Renames and removals, directories synced; the change is recorded; ``pending`` goes.

A crash before 4 leaves nothing but staged files, which the next command removes. A crash after 4
is finished by the next command. An error after 4 takes the change back at once.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from coilclaw.domain.files import Obstacle, RegularFile
from coilclaw.errors import CoilClawError, EnvironmentFault, PlanRefused
from coilclaw.storage.atomic import sync_directory, write_atomic
from coilclaw.workspace import changefile, directories, recovery
from coilclaw.workspace.changefile import Change
from coilclaw.workspace.changelog import Changelog
from coilclaw.workspace.placement import Placement

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from coilclaw.changes.plan import FileChange, Plan
    from coilclaw.workspace.placement import Staged
    from coilclaw.workspace.resolve import Root
    from coilclaw.workspace.state import TreeState


@dataclass(frozen=True, slots=True)
class Purpose:
    """Why a plan is applied, for the record."""

    origin: str
    group: str = ""
    undoes: tuple[str, ...] = ()


class Writer:
    """Applies plans to one open tree."""

    def __init__(
        self,
        root: Root,
        state: TreeState,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        token: Callable[[], str] = lambda: secrets.token_hex(3),
    ) -> None:
        self._root = root
        self._state = state
        self._now = now
        self._token = token
        self._changelog = Changelog(state)

    def apply(
        self, plan: Plan, purpose: Purpose, *, removable: Container[tuple[str, ...]] | None = None
    ) -> Change:
        """Put the plan into the tree; raise, with the tree as it was, when that cannot be done.

        Directories that lose their last file go too, but no others than ``removable`` if given.
        """
        if plan.empty:
            raise PlanRefused("the plan changes nothing", rule="plan.empty")
        self._state.create()
        with self._state.lock():
            recovery.recover(self._root, self._state)
            return self._apply(plan, purpose, removable)

    def _apply(
        self, plan: Plan, purpose: Purpose, removable: Container[tuple[str, ...]] | None
    ) -> Change:
        now = self._now()
        change_id = f"{now:%Y%m%d-%H%M%S}-{self._token()}"
        placement = Placement(self._root, change_id)
        folder = self._changelog.folder(change_id)
        modes = {
            item.path: mode
            for item in plan.changes
            if item.before is not None and (mode := placement.mode(item.path)) is not None
        }
        self._changelog.ready()
        self._recheck(plan)
        kept = Change(
            change_id,
            now.isoformat(timespec="milliseconds"),
            purpose.origin,
            purpose.group,
            purpose.undoes,
            (),
            directories.missing(plan, placement),
            directories.emptied(plan, placement, removable),
        )
        mark(self._state, change_id, "staging")
        try:
            change = changefile.write(folder, kept, plan, modes)
            staged = [
                placement.stage(index, item.path, item.after, modes.get(item.path))
                for index, item in enumerate(plan.changes)
                if item.after is not None
            ]
            self._recheck(plan)
        except (OSError, CoilClawError) as problem:
            recovery.abandon(self._root, self._state, change_id)
            raise _explained(
                "the change could not be prepared; the tree is as it was", problem
            ) from problem
        mark(self._state, change_id, "committed")
        try:
            _install(change, plan, staged, placement)
        except (OSError, CoilClawError) as problem:
            recovery.roll_back(self._root, self._state, change)
            raise _explained("the change failed half-way and was taken back", problem) from problem
        self._changelog.append(change)
        unmark(self._state)
        return change

    def _recheck(self, plan: Plan) -> None:
        """Refuse when a file is no longer what the plan was made for."""
        emptied = {
            item.path.parts[:depth]
            for item in plan.changes
            if item.after is None
            for depth in range(1, len(item.path.parts))
        }
        changed = [
            str(item.path)
            for item in plan.changes
            if not self._unchanged(item, emptied=item.path.parts in emptied)
        ]
        if changed:
            raise PlanRefused(
                f"changed since the plan was made: {', '.join(changed[:10])}",
                rule="plan.changed",
                path=changed[0],
                hint="run the command again",
            )

    def _unchanged(self, item: FileChange, *, emptied: bool) -> bool:
        found = self._root.read(item.path, limit=_limit(item))
        # A directory that the plan itself empties makes room for a file of its name.
        return found == item.before or (emptied and found == Obstacle("directory"))


def _install(change: Change, plan: Plan, staged: list[Staged], placement: Placement) -> None:
    """Removals come first, so that a directory may become a file and a file a directory."""
    for item in plan.changes:
        if item.after is None:
            placement.remove(item.path)
    for parts in reversed(change.emptied):
        placement.remove_directory(parts)
    for each in staged:
        placement.install(each)
    placement.sync()


def mark(state: TreeState, change_id: str, phase: Literal["staging", "committed"]) -> None:
    """Say on disk which change is under way and how far it is."""
    data = json.dumps({"id": change_id, "phase": phase}).encode("ascii") + b"\n"
    write_atomic(state.pending, data, mode=0o600)


def unmark(state: TreeState) -> None:
    """Say on disk that nothing is under way."""
    state.pending.unlink(missing_ok=True)
    sync_directory(state.directory)


def _limit(item: FileChange) -> int:
    size = len(item.before.content) if isinstance(item.before, RegularFile) else 0
    return size + 2**20


def _explained(what: str, problem: Exception) -> CoilClawError:
    if isinstance(problem, PlanRefused):
        return PlanRefused(problem.message, rule=problem.rule, path=problem.path, hint=problem.hint)
    reason = problem.strerror if isinstance(problem, OSError) else str(problem)
    return EnvironmentFault(f"{what}: {reason or problem}", rule="tree.write")
