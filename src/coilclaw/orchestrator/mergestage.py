"""S6: accepted work goes into the target branch, after the gates saw the merged tree too."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.contracts.eventtypes import EventType
from coilclaw.errors import Stopped
from coilclaw.gates import merge as merge_gate
from coilclaw.orchestrator.candidates import Candidate, printable
from coilclaw.orchestrator.ready_worktree import ready
from coilclaw.orchestrator.teststage import TestStage
from coilclaw.workspace import merging
from coilclaw.workspace.landing import MOVED, Refused, land
from coilclaw.workspace.merging import Conflicted

if TYPE_CHECKING:
    from coilclaw.gates.result import GateResult
    from coilclaw.orchestrator.equipment import Equipment
    from coilclaw.orchestrator.inspection import Inspection
    from coilclaw.orchestrator.run import Run
    from coilclaw.workspace.merging import Merged
    from coilclaw.workspace.repository import Repository

NAME: Final = "merged"
MAX_LISTING: Final = 2**30
MAX_JOINS: Final = 20
"""How often work is joined with a branch that other runs, or the user, move meanwhile."""


@dataclass(frozen=True, slots=True)
class MergeOutcome:
    """What became of it; ``reason`` says why it was not merged."""

    merged: bool
    reason: str = ""
    pending: bool = False
    """Whether nothing is wrong with the work: it can be merged once the way is free."""


class MergeStage:
    """Merges the candidate of a run."""

    def __init__(self, run: Run, equipment: Equipment, inspection: Inspection) -> None:
        self._run = run
        self._equipment = equipment
        self._inspection = inspection

    def pending(self, reason: str = "") -> None:
        """Leave the merging to somebody later; the commit is kept."""
        if self._run.progress.merge != "pending":
            payload = {
                "branch": str(self._run.option("branch") or ""),
                "commit": str(self._run.progress.candidate["commit"]),
                "reason": reason,
            }
            self._run.emit(EventType.MERGE_PENDING, payload, level="WARN" if reason else "INFO")

    def merge(self) -> MergeOutcome:
        """Merge now. A kill anywhere leads to the same result when it is done again."""
        run, equipment = self._run, self._equipment
        branch = str(run.option("branch") or "")
        if not branch:
            return self._later("there is no branch that is checked out")
        candidate = str(run.progress.candidate["commit"])
        started = run.progress.merging
        tip = equipment.repository.branch(branch)
        if started.get("commit") and tip is not None:
            commit = str(started["commit"])
            if equipment.repository.is_ancestor(commit, tip):
                return self._completed(branch, commit)
        done = self._join(branch, candidate)
        for _ in range(MAX_JOINS - 1):
            if isinstance(done, MergeOutcome) or done.rule != MOVED:
                break
            if equipment.cancel.cancelled:
                raise Stopped(f"the run was stopped: {equipment.cancel.reason}")
            done = self._join(branch, candidate)
        if isinstance(done, MergeOutcome):
            return done
        hint = f" ({done.hint})" if done.hint else ""
        # The work is good; what is in the way is in the user's worktree.
        return self._later(f"{done.reason}{hint}")

    def _join(self, branch: str, candidate: str) -> MergeOutcome | Refused:
        """Join the candidate with what the branch is now, judge that, and move the branch."""
        run, equipment = self._run, self._equipment
        merged = merging.merge(
            equipment.repository,
            equipment.places.git,
            branch,
            candidate,
            run_id=run.id,
            message=self._message(),
            time=str(run.option("created_at")),
        )
        if isinstance(merged, Conflicted):
            named = ", ".join(merged.paths[:20])
            return self._refused("merge.conflict", f"{merged.reason}: {named}")
        passed, why = self._judged(merged)
        if not passed:
            return MergeOutcome(merged=False, reason=why)
        run.emit(
            EventType.MERGE_STARTED,
            {
                "branch": branch,
                "target_commit": merged.onto,
                "candidate_commit": candidate,
                "commit": merged.commit,
            },
        )
        landed = land(
            equipment.repository,
            equipment.places.git,
            branch,
            merged.onto,
            merged.commit,
            ours=equipment.worktrees.git_dirs(),
        )
        if isinstance(landed, Refused):
            return landed
        return self._completed(branch, merged.commit)

    def _completed(self, branch: str, commit: str) -> MergeOutcome:
        self._run.emit(
            EventType.MERGE_COMPLETED,
            {
                "branch": branch,
                "commit": commit,
                "tree": self._equipment.repository.tree(commit),
            },
        )
        return MergeOutcome(merged=True)

    def _judged(self, merged: Merged) -> tuple[bool, str]:
        """Run the gates again on the merged tree; the candidate's own tree needs it only once."""
        run, repository = self._run, self._equipment.repository
        tested = True
        candidate = run.progress.candidate
        if merged.tree != candidate["tree"]:
            tested = self._tested(merged)
        gate: GateResult = merge_gate.judge(
            names=_changed(repository, merged.onto, merged.commit),
            allowed_paths=tuple(
                path
                for task in run.progress.active
                for path in run.contract(task.task_id).allowed_paths
            ),
            tests_passed=tested,
            conflicts=(),
        )
        passed = run.judged(gate)
        return passed, "; ".join(each.message for each in gate.violations[:5])

    def _tested(self, merged: Merged) -> bool:
        equipment, run = self._equipment, self._run
        path = run.places.own_worktree(run.id, NAME)
        worktree = equipment.worktrees.add(path, merged.commit)
        try:
            snapshot = equipment.snapshots.take(path)
            stage = TestStage(run, equipment, self._inspection)
            with ready(run, self._inspection, NAME, worktree, merged.commit) as made_ready:
                opened = Candidate(merged.commit, merged.tree, made_ready, snapshot)
                return stage.test(opened, where=NAME).passed
        finally:
            equipment.worktrees.remove(worktree)

    def _later(self, reason: str) -> MergeOutcome:
        self.pending(reason)
        return MergeOutcome(merged=False, reason=reason, pending=True)

    def _refused(self, rule: str, reason: str) -> MergeOutcome:
        gate = merge_gate.refused(rule, reason)
        self._run.judged(gate)
        return MergeOutcome(merged=False, reason=reason)

    def _message(self) -> str:
        spec = printable(self._run.root_contract.inputs.spec[:2000])
        return f"Merge run {self._run.id}\n\n{spec}\n"


def _changed(repository: Repository, old: str, new: str) -> tuple[str, ...]:
    """The paths in which two commits differ."""
    listing = repository.git.run(
        "diff-tree", "-r", "-z", "--name-only", "--no-renames", old, new, limit_bytes=MAX_LISTING
    )
    return tuple(os.fsdecode(name) for name in listing.split(b"\0") if name)
