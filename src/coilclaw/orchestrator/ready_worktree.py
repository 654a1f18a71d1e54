"""``ReadyWorktree``: a worktree with everything that commands and agents need to work in it."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.agents.containment import environ_of, make_home, sandbox_of
from coilclaw.agents.process import ProcessRunner
from coilclaw.orchestrator.dependency_changes import lay_named
from coilclaw.orchestrator.places import segment
from coilclaw.orchestrator.worktree_setup import set_up
from coilclaw.workspace.dependencies import Dependency, find_dependencies
from coilclaw.workspace.dependency_copies import untracked_parts
from coilclaw.workspace.worktree_mount import can_mount, mounted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from contextlib import AbstractContextManager

    from coilclaw.agents.runner import Filesystem, Network, Runner
    from coilclaw.gates.scope import Scope
    from coilclaw.orchestrator.equipment import Equipment
    from coilclaw.orchestrator.inspection import Inspection
    from coilclaw.orchestrator.run import Run
    from coilclaw.orchestrator.worktree_setup import SetupTerms, WorktreeSetup
    from coilclaw.workspace.sandbox import Mount, Sandbox
    from coilclaw.workspace.worktree_mount import WorktreeMount
    from coilclaw.workspace.worktrees import Worktree

UNREADABLE: Final = (
    "coilclaw: the sandbox (Landlock) cannot show the worktree at the path of the checkout, so the "
    "checkout {checkout} cannot be read. What an editable install, a .pth file or a build cache "
    "leads to there is missing. Install bubblewrap.\n"
)


@dataclass(frozen=True, slots=True)
class ReadyWorktree:
    """One worktree at the path of the checkout; its sandboxes and environments come from here."""

    equipment: Equipment
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
        return self.mount.points.held()

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
        self,
        home: Path,
        *,
        filesystem: Filesystem,
        network: Network,
        commits: bool = False,
    ) -> Sandbox:
        """Return what something that works in it is confined to.

        ``commits`` is whether git may write as well.
        """
        equipment, worktree = self.equipment, self.mount.worktree
        writable = worktree.writable if commits else (worktree.path,)
        mounts = self._mounts(home) if equipment.sandbox != "none" else ()
        if filesystem == "read-only":
            # Tests find the same copies, and no reviewer has a say in what they see.
            mounts = tuple(replace(mount, private=False) for mount in mounts)
        return sandbox_of(
            writable,
            home,
            filesystem=filesystem,
            network=network,
            hidden=(*hidden_places(equipment), *self._of_others()),
            kind=equipment.sandbox,
            shown=(*worktree.writable, equipment.repository.common_dir),
            mounts=mounts,
            view=equipment.view,
        )

    def _of_others(self) -> tuple[Path, ...]:
        """What other runs keep, where it does not lie in the checkout; mounts show what is ours."""
        places = self.equipment.places
        return (places.homes, places.worktrees, places.setups) if self.mount.mounting else ()

    def _mounts(self, home: Path) -> tuple[Mount, ...]:
        return self.mount.with_home(home, *(() if self.setup is None else (self.setup.home,)))

    def environ(self, home: Path) -> dict[str, str]:
        """Return the environment of something that works in it, without what git needs."""
        mount = self.mount
        # What is installed in the checkout is the user's; all else at its path is the worktree's.
        barred = (mount.worktree.path, *((mount.checkout,) if mount.mounting else ()))
        return environ_of(home, self.equipment.environ, kept_out=barred, trusted=mount.installed)


@contextmanager
def ready(
    run: Run,
    inspection: Inspection,
    name: str,
    worktree: Worktree,
    commit: str,
    *,
    runner: Runner | None = None,
    scope: Scope | None = None,
    terms: SetupTerms | None = None,
) -> Iterator[ReadyWorktree]:
    """Make a worktree ready, with the set-up of a commit; what was made for it goes afterwards.

    ``runner`` is who works in it, whose program may lie in the checkout, and ``scope`` what may
    change then. ``terms`` are those of a set-up before there is a contract.
    """
    equipment = inspection.equipment
    with set_up(run, inspection, commit, terms) as setup:
        kept = inspection.kept_of(inspection.baseline)
        found = (
            *find_dependencies(equipment.repository.top, kept),
            *_programs(runner, equipment.repository.top, kept),
            *(setup.dependencies if setup else ()),
        )
        every = {one.path: one for one in found}
        laid: tuple[Dependency, ...] = ()
        if scope is not None and can_mount(equipment.sandbox, equipment.support):
            laid = lay_named(inspection, worktree, every.values(), scope)
        # What git tracks there is judged as it is: nothing may be mounted over it.
        own = inspection.kept_of(worktree.commit)
        shown = [every[path] for path in sorted(every) if every[path] not in laid]
        with bare(
            equipment,
            run.id,
            name,
            worktree,
            dependencies=[part for one in shown for part in untracked_parts(one, own)],
            setup=setup,
        ) as made:
            yield replace(made, laid=laid)


@contextmanager
def bare(
    equipment: Equipment,
    run_id: str,
    name: str,
    worktree: Worktree,
    *,
    dependencies: Sequence[Dependency] = (),
    setup: WorktreeSetup | None = None,
) -> Iterator[ReadyWorktree]:
    """Make a worktree ready with these dependencies and no others."""
    places = equipment.places
    with mounted(
        worktree,
        equipment.repository,
        runtime=places.runtime,
        scratch=places.own_home(run_id, f"mount-{segment(name)}"),
        dependencies=dependencies,
        mounting=can_mount(equipment.sandbox, equipment.support),
    ) as mount:
        yield ReadyWorktree(equipment, mount, setup)


def _programs(runner: Runner | None, top: Path, kept: Collection[str]) -> Iterator[Dependency]:
    """The files of an agent that stand in the checkout and not in the repository."""
    if not isinstance(runner, ProcessRunner):
        return
    for word in map(Path, runner.command_line()):
        if word.is_absolute() and word.is_relative_to(top) and word.is_file():
            path = word.relative_to(top).as_posix()
            if path not in kept:
                yield Dependency(path, word)


def environments_on_path(equipment: Equipment, kept: Collection[str]) -> list[Dependency]:
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


def hidden_places(equipment: Equipment) -> tuple[Path, ...]:
    """Return what no agent and no test of a run sees: our keys, and the evidence."""
    places = equipment.places
    owners = places.runtime / "owners"
    return (equipment.home, places.runs, places.locks, places.snapshots, places.git, owners)
