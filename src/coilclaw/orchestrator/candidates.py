"""The candidate: the baseline with all accepted work, as a commit and in a worktree of its own."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.contracts.eventtypes import EventType
from coilclaw.errors import EnvironmentFault
from coilclaw.orchestrator import patchnames
from coilclaw.orchestrator.places import segment
from coilclaw.orchestrator.ready_worktree import ready
from coilclaw.orchestrator.working import patch_path, snapshot_of
from coilclaw.workspace import merging

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coilclaw.orchestrator.equipment import Equipment
    from coilclaw.orchestrator.inspection import Inspection
    from coilclaw.orchestrator.ready_worktree import ReadyWorktree
    from coilclaw.orchestrator.run import Run
    from coilclaw.workspace.snapshot import Snapshot

NAME: Final = "candidate"
"""The task id that its worktree stands under; no contract may have it."""
MAX_PATCH_BYTES: Final = 512 * 2**20


@dataclass(frozen=True, slots=True)
class Candidate:
    """What is reviewed, tested and perhaps merged."""

    commit: str
    tree: str
    worktree: ReadyWorktree
    snapshot: Snapshot


def built(
    run: Run, equipment: Equipment, baseline: str, task_ids: Sequence[str], name: str
) -> tuple[str, str]:
    """Make the commit of the baseline and some patches; return it and its tree.

    It is the same commit each time: same tree, same message, same time. Patches that do not go
    together are a ``PlanRefused``.
    """
    patches = [
        merging.Patch(
            task_id,
            run.bundle.read(patch_path(task_id), limit=MAX_PATCH_BYTES),
            _message(run, task_id),
        )
        for task_id in task_ids
    ]
    made = merging.build(
        equipment.repository,
        equipment.places.git,
        baseline,
        patches,
        run_id=run.id,
        time=str(run.option("created_at")),
        name=segment(name),
    )
    return made.commit, made.tree


@contextmanager
def opened(run: Run, inspection: Inspection) -> Iterator[Candidate]:
    """Open the candidate of the tasks as they are; its worktree goes when it is closed."""
    equipment, baseline = inspection.equipment, inspection.baseline
    task_ids = [task.task_id for task in run.progress.active]
    commit, tree = built(run, equipment, baseline, task_ids, NAME)
    path = run.places.own_worktree(run.id, NAME)
    worktree = equipment.worktrees.add(path, commit)
    try:
        snapshot = equipment.snapshots.take(path)
        if snapshot.tree != equipment.worktrees.borrowing.exact_tree(commit):
            raise EnvironmentFault(
                f"{path} is not what commit {commit} holds", rule="run.candidate"
            )
        if not run.progress.candidate:
            _keep(run, equipment, baseline, snapshot)
            run.emit(
                EventType.CANDIDATE_PREPARED,
                {
                    "commit": commit,
                    "tree": tree,
                    "snapshot": snapshot.id,
                    "tasks": task_ids,
                },
            )
        with ready(run, inspection, NAME, worktree, commit) as made_ready:
            yield Candidate(commit, tree, made_ready, snapshot)
    finally:
        equipment.worktrees.remove(worktree)


def _keep(run: Run, equipment: Equipment, baseline: str, snapshot: Snapshot) -> None:
    """Keep the patch of the whole run, from the same two trees that are judged."""
    tasks = run.progress.active
    if len(tasks) == 1:
        # One task: its patch is the run's, byte for byte.
        patch = run.bundle.read(patch_path(tasks[0].task_id), limit=MAX_PATCH_BYTES)
    else:
        # The first of them stands on nobody's work: what it is measured against is the baseline.
        grounds = (task.origin for task in tasks if not task.below)
        origin = next(grounds, "") or snapshot_of(run, equipment, baseline).id
        patch = equipment.snapshots.patch(origin, snapshot.id)
    names = patchnames.name_only(patch)
    for folder in ("", "git/"):
        run.bundle.write_bytes(f"{folder}patch.diff", patch, redact=False)
        run.bundle.write_bytes(f"{folder}diff_name_only.txt", names, redact=False)


def printable(text: str) -> str:
    """Text for a commit message: what a terminal would obey, or not show, becomes a space."""
    return "".join(char if char.isprintable() or char == "\n" else " " for char in text)


def _message(run: Run, task_id: str) -> str:
    contract = run.contract(task_id)
    first = " ".join(printable(contract.inputs.spec).split())[:120]
    return f"{task_id}: {first}\n\nRun: {run.id}\n"
