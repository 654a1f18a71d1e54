"""``ReadyWorktree``: a worktree with everything that commands and agents need to work in it."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.agents.containment import environ_of, sandbox_of
from coilclaw.orchestrator.places import segment
from coilclaw.workspace.dependencies import Dependency, find_dependencies
from coilclaw.workspace.worktree_mount import can_mount, mounted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from coilclaw.agents.runner import Filesystem, Network
    from coilclaw.orchestrator.equipment import Equipment
    from coilclaw.workspace.sandbox import Sandbox
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
        return sandbox_of(
            writable,
            home,
            filesystem=filesystem,
            network=network,
            hidden=hidden_places(equipment),
            kind=equipment.sandbox,
            shown=(*worktree.writable, equipment.repository.common_dir),
            mounts=self.mount.with_home(home) if equipment.sandbox != "none" else (),
        )

    def environ(self, home: Path) -> dict[str, str]:
        """Return the environment of something that works in it, without what git needs."""
        mount = self.mount
        # What is installed in the checkout is the user's; all else at its path is the worktree's.
        barred = (mount.worktree.path, *((mount.checkout,) if mount.mounting else ()))
        return environ_of(home, self.equipment.environ, kept_out=barred, trusted=mount.installed)


@contextmanager
def ready(
    equipment: Equipment,
    run_id: str,
    name: str,
    worktree: Worktree,
    *,
    baseline: str,
    more: Sequence[Dependency] = (),
) -> Iterator[ReadyWorktree]:
    """Make a worktree ready; what was made for it goes when it is closed.

    ``more`` are dependencies beside those of the checkout, and instead of those at the same paths.
    """
    repository, places = equipment.repository, equipment.places
    tracked = repository.files(baseline)
    found = {one.path: one for one in find_dependencies(repository.top, tracked)}
    found |= {one.path: one for one in more}
    with mounted(
        worktree,
        repository,
        runtime=places.runtime,
        scratch=places.own_home(run_id, f"mount-{segment(name)}"),
        dependencies=[found[path] for path in sorted(found)],
        mounting=can_mount(equipment.sandbox, equipment.support),
    ) as mount:
        yield ReadyWorktree(equipment, mount)


def hidden_places(equipment: Equipment) -> tuple[Path, ...]:
    """Return what no agent and no test of a run sees: our keys, and the evidence."""
    places = equipment.places
    owners = places.runtime / "owners"
    return (equipment.home, places.runs, places.locks, places.snapshots, places.git, owners)
