"""``ReadyWorktree``: a worktree with everything that commands and agents need to work in it."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.runners import environ_of, make_home, sandbox_of
from coilclaw.runs.engine.inspection import Inspection, with_parents
from coilclaw.runs.evidence.layout import make_segment
from coilclaw.runs.gates.scope import Scope, cache_above, is_named, named_places
from coilclaw.workspace import (
    Dependency,
    can_mount,
    changed_files,
    find_dependencies,
    is_beside,
    lay_dependency,
    mount_worktree,
    untracked_paths,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from coilclaw.runners import Filesystem, Network
    from coilclaw.runs.engine.run import RunDependencies
    from coilclaw.runs.engine.worktree_setup import WorktreeSetup
    from coilclaw.workspace import Sandbox, Worktree, WorktreeMount


UNREADABLE: Final = (
    "coilclaw: the sandbox (Landlock) cannot show the worktree at the path of the checkout, so the "
    "checkout {checkout} cannot be read. What an editable install, a .pth file or a build cache "
    "leads to there is missing. Install bubblewrap.\n"
)


@dataclass(frozen=True, slots=True)
class ReadyWorktree:
    """One worktree at the path of the checkout; its sandboxes and environments come from here."""

    equipment: RunDependencies
    mount: WorktreeMount
    setup: WorktreeSetup | None = None
    laid: tuple[Dependency, ...] = ()
    """The dependencies that are laid into it, because the contract names them."""

    @property
    def directory(self) -> Path:
        """Where it lies on this machine."""
        return self.mount.worktree.path

    @property
    def seen_at(self) -> Path:
        """Where commands find it."""
        return self.mount.seen_at

    def in_use(self) -> AbstractContextManager[None]:
        """Let something be mounted in it; outside of this it holds nothing but its tree."""
        return self.mount.points.hold_mounts()

    @property
    def warning(self) -> str:
        """What a command that failed should be told of the sandbox; empty: nothing."""
        hiding = not self.mount.mounting and self.equipment.sandbox != "none"
        return UNREADABLE.format(checkout=self.mount.checkout) if hiding else ""

    def renew(self) -> None:
        """Undo what commands did to the dependencies that they could write."""
        self.mount.renew()

    def make_home(self, home: Path) -> None:
        """Make a home for something that works in it, with what the set-up installed at home."""
        make_home(home, self.equipment.environ)
        if self.setup is not None:
            self.setup.fill_home(home)

    def sandbox(
        self, home: Path, *, filesystem: Filesystem, network: Network, commits: bool = False
    ) -> Sandbox:
        """Return what something that works in it is confined to.

        ``commits`` is whether git may write as well.
        """
        equipment, worktree = self.equipment, self.mount.worktree
        writable = worktree.writable if commits else (worktree.path,)
        setup = () if self.setup is None else (self.setup.home,)
        mounts = self.mount.with_home(home, *setup) if equipment.sandbox != "none" else ()
        # What other runs keep, where it does not lie in the checkout; mounts show what is ours.
        places = equipment.places
        others = (places.homes, places.worktrees, places.setups) if self.mount.mounting else ()
        if filesystem == "read-only":
            # Tests find the same copies, and no reviewer has a say in what they see.
            mounts = tuple(replace(mount, private=False) for mount in mounts)
        return sandbox_of(
            writable,
            home,
            filesystem=filesystem,
            network=network,
            hidden=(*hidden_places(equipment), *others),
            kind=equipment.sandbox,
            shown=(*worktree.writable, equipment.repository.common_dir),
            mounts=mounts,
            view=equipment.view,
        )

    def environ(self, home: Path) -> dict[str, str]:
        """Return the environment of something that works in it, without what git needs."""
        mount = self.mount
        # What is installed in the checkout is the user's; all else at its path is the worktree's.
        barred = (mount.worktree.path, *((mount.checkout,) if mount.mounting else ()))
        return environ_of(home, self.equipment.environ, kept_out=barred, trusted=mount.installed)


@contextmanager
def prepare_bare_worktree(
    equipment: RunDependencies,
    run_id: str,
    name: str,
    worktree: Worktree,
    *,
    dependencies: Sequence[Dependency] = (),
    setup: WorktreeSetup | None = None,
) -> Iterator[ReadyWorktree]:
    """Make a worktree ready with these dependencies and no others."""
    places = equipment.places
    with mount_worktree(
        worktree,
        equipment.repository,
        runtime=places.runtime,
        scratch=places.own_home(run_id, f"mount-{make_segment(name)}"),
        dependencies=dependencies,
        mounting=can_mount(equipment.sandbox, equipment.support),
    ) as mount:
        yield ReadyWorktree(equipment, mount, setup)


def environments_on_path(equipment: RunDependencies, kept: Collection[str]) -> list[Dependency]:
    """Return the virtual environments of the checkout that the user works in, to be copied.

    A set-up may install into them.
    """
    top = equipment.repository.top
    entries = [Path(entry) for entry in equipment.environ.get("PATH", "").split(":")]
    return [
        replace(one, copied=True)
        for one in find_dependencies(top, kept)
        if any(entry.is_relative_to(top / one.path) for entry in entries)
    ]


def hidden_places(equipment: RunDependencies) -> tuple[Path, ...]:
    """Return what no agent and no test of a run sees: our keys, and the evidence."""
    places = equipment.places
    owners = places.runtime / "owners"
    return (equipment.home, places.runs, places.locks, places.snapshots, places.git, owners)


MAX_CHANGED: Final = 100_000
"""Files of one dependency that are looked at."""
IGNORED: Final = "the baseline ignores it"
CACHE: Final = "it is a cache"
UNNAMED: Final = "a set-up or the checkout provides it, and allowed_paths does not name it"
REMOVED: Final = "it was removed, and a set-up or the checkout provides it again"
REASONS: Final = (UNNAMED, REMOVED, CACHE, IGNORED)
"""The first two concern what may have been meant as work."""


@dataclass(frozen=True, slots=True)
class DroppedChange:
    """One file that an agent changed, and that is not part of the change."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class DependencyChanges:
    """What to make of the dependencies of one worktree, once an agent has worked in it."""

    left_out: tuple[str, ...] = ()
    """Paths of the worktree that are not part of the change, with all that is below them."""
    dropped: tuple[DroppedChange, ...] = ()
    """What may have been meant as work comes first."""


def lay_named(
    inspection: Inspection, worktree: Worktree, found: Iterable[Dependency], scope: Scope
) -> tuple[Dependency, ...]:
    """Lay the dependencies that a contract names into a worktree; return them.

    What the baseline ignores is never part of a change, and stays where it is.
    """
    named = [one for one in found if is_named(one.path, scope.allowed_paths)]
    ignored = inspection.find_ignored({one.path: one.source.is_dir() for one in named})
    own = inspection.kept_of(worktree.commit)
    return tuple(
        one
        for one in named
        if one.path not in ignored
        and (one.path not in own or one.source.is_dir())
        and lay_dependency(one, worktree.path)
    )


def find_changes(inspection: Inspection, ready: ReadyWorktree, scope: Scope) -> DependencyChanges:
    """Compare the dependencies in which an agent worked with what they were."""
    root, own = ready.directory, inspection.kept_of(ready.mount.worktree.commit)
    dropped: list[DroppedChange] = []
    work, places = set[str](), list[str]()
    for one in ready.laid:
        named = named_places(one.path, scope.allowed_paths)
        changed = _list_changed(one, root / one.path) if is_beside(one.path, root) else []
        if len(changed) == MAX_CHANGED:
            continue  # the gate judges, and refuses, all of it
        places.append(one.path)
        for path, there in changed:
            if path in own:
                continue
            # What stands in the place of the whole of it is for the gate to judge.
            if there and (path == one.path or named.cover(path)):
                work.add(path)
            else:
                dropped.append(
                    DroppedChange(path, _choose_reason(path, there=there, ignored=False))
                )
    mounted = [one for one, _ in ready.mount.copies]
    ignored = inspection.find_ignored({one.path: True for one in mounted})
    for one, copy in ready.mount.copies:
        dropped += [
            DroppedChange(path, _choose_reason(path, there=there, ignored=one.path in ignored))
            for path, there in _list_changed(one, copy)
        ]
    kept = own | with_parents(work)
    left_out = tuple(
        path
        for path, _ in (untracked_paths(root, kept) if places else ())
        if any(path == place or path.startswith(f"{place}/") for place in places)
    )
    dropped.sort(key=lambda each: (REASONS.index(each.reason), each.path))
    return DependencyChanges(left_out, tuple(dropped))


def _list_changed(one: Dependency, copy: Path) -> list[tuple[str, bool]]:
    """The changed files by their paths in the worktree."""
    found = islice(changed_files(one.source, copy), MAX_CHANGED)
    return [(f"{one.path}/{path}" if path else one.path, there) for path, there in found]


def _choose_reason(path: str, *, there: bool, ignored: bool) -> str:
    if ignored:
        return IGNORED
    if not there:
        return REMOVED
    return CACHE if cache_above(path, directory=False) else UNNAMED
