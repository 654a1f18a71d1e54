"""S6: accepted work goes into the target branch, after the gates saw the merged tree too.

``apply`` merges a run's work after the run was sealed, with the same gates; the evidence of it is
an audit, and the bundle itself stays as it is.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import UsageError, VerificationFailed, write_atomic
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.engine import candidate as candidates
from coilclaw.runs.engine.candidate import TestStage
from coilclaw.runs.engine.inspection import Inspection, RunStage
from coilclaw.runs.engine.run import Run, RunDependencies
from coilclaw.runs.engine.run_start import open_sealed
from coilclaw.runs.engine.worktree_setup import prepare_worktree
from coilclaw.runs.evidence import layout
from coilclaw.runs.evidence.audits import APPLICATION, list_applications
from coilclaw.runs.evidence.bundle import Bundle, json_bytes, new_audit
from coilclaw.runs.evidence.event_log import EventLog
from coilclaw.runs.gates import decision_gates
from coilclaw.workspace import (
    MOVED,
    Conflicted,
    LandingRefused,
    check_commit_id,
    land_branch,
    merge,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from coilclaw.kernel import Json
    from coilclaw.runs.contracts.task_contract import TaskContract
    from coilclaw.workspace import Merged, Repository

NAME: Final = "merged"
MAX_LISTING: Final = 2**30
MAX_JOINS: Final = 20
"""How often work is joined with a branch that other runs, or the user, move meanwhile."""


@dataclass(frozen=True, slots=True)
class MergeOutcome:
    """The result of a merge; ``reason`` says why it was not made."""

    merged: bool
    reason: str = ""
    pending: bool = False
    """Whether the work is good, and can be merged once the branch allows it."""


class MergeStage(RunStage):
    """Merges the candidate of a run."""

    def pending(self, reason: str = "") -> MergeOutcome:
        """Leave the merge for later; the commit is kept."""
        run = self.run
        if run.progress.merge != "pending":
            commit = str(run.progress.candidate["commit"])
            payload = {"branch": run.branch, "commit": commit, "reason": reason}
            run.emit(EventType.MERGE_PENDING, payload, level="WARN" if reason else "INFO")
        return MergeOutcome(merged=False, reason=reason, pending=True)

    def merge(self) -> MergeOutcome:
        """Merge now; after a kill, merging again leads to the same result."""
        run, repository = self.run, self.equipment.repository
        if not run.branch:
            return self.pending("no branch is checked out")
        tip = repository.branch(run.branch)
        started = str(run.progress.merging.get("commit") or "")
        if started and tip is not None and repository.is_ancestor(started, tip):
            return self._complete(started)
        done = self._join()
        for _ in range(MAX_JOINS - 1):
            if isinstance(done, MergeOutcome) or done.rule != MOVED:
                break
            self.equipment.check_cancelled()
            done = self._join()
        if isinstance(done, MergeOutcome):
            return done
        # The work is good; what is in the way is in the user's worktree.
        return self.pending(f"{done.reason} ({done.hint})" if done.hint else done.reason)

    def _join(self) -> MergeOutcome | LandingRefused:
        """Join the candidate with what the branch is now, judge that, and move the branch."""
        run, equipment, branch = self.run, self.equipment, self.run.branch
        candidate = str(run.progress.candidate["commit"])
        spec = candidates.printable(run.root_contract.inputs.spec[:2000])
        merged = merge.merge_candidate(
            equipment.repository,
            equipment.places.git,
            branch,
            candidate,
            run_id=run.id,
            message=f"Merge run {run.id}\n\n{spec}\n",
            time=str(run.option("created_at")),
        )
        if isinstance(merged, Conflicted):
            reason = f"{merged.reason}: {', '.join(merged.paths[:20])}"
            run.record_gate(decision_gates.refuse_merge("merge.conflict", reason))
            return MergeOutcome(merged=False, reason=reason)
        # The candidate's own tree was tested before.
        tested = merged.tree == run.progress.candidate["tree"] or self._test(merged)
        listing = equipment.repository.git.run(
            *("diff-tree", "-r", "-z", "--name-only", "--no-renames", merged.onto, merged.commit),
            limit_bytes=MAX_LISTING,
        )
        gate = decision_gates.judge_merge(
            names=[os.fsdecode(name) for name in listing.split(b"\0") if name],
            allowed_paths=tuple(path for one in run.active_contracts for path in one.allowed_paths),
            tests_passed=tested,
            conflicts=(),
        )
        if not run.record_gate(gate):
            why = "; ".join(each.message for each in gate.violations[:5])
            return MergeOutcome(merged=False, reason=why)
        started = {
            "branch": branch,
            "target_commit": merged.onto,
            "candidate_commit": candidate,
            "commit": merged.commit,
        }
        run.emit(EventType.MERGE_STARTED, started)
        landed = land_branch(
            equipment.repository,
            equipment.places.git,
            branch,
            merged.onto,
            merged.commit,
            ours=equipment.worktrees.git_dirs(),
        )
        return landed if isinstance(landed, LandingRefused) else self._complete(merged.commit)

    def _complete(self, commit: str) -> MergeOutcome:
        tree = self.equipment.repository.tree(commit)
        done = {"branch": self.run.branch, "commit": commit, "tree": tree}
        self.run.emit(EventType.MERGE_COMPLETED, done)
        return MergeOutcome(merged=True)

    def _test(self, merged: Merged) -> bool:
        run, equipment, inspection = self.run, self.equipment, self.inspection
        path = run.places.own_worktree(run.id, NAME)
        with equipment.open_worktree(path, merged.commit) as worktree:
            snapshot = equipment.snapshots.take(path)
            with prepare_worktree(run, inspection, NAME, worktree, merged.commit) as made:
                opened = candidates.Candidate(merged.commit, merged.tree, made, snapshot)
                return TestStage(run, inspection).run_tests(opened, where=NAME).passed


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of applying a run."""

    run_id: str
    merged: bool
    branch: str
    commit: str = ""
    """The commit of the branch now; empty if nothing was merged."""
    reason: str = ""
    already: bool = False
    """Whether it was merged before, so that nothing changed now."""
    audit: Path | None = None
    """Where the evidence is."""


def apply_run(equipment: RunDependencies, run_id: str, *, branch: str | None = None) -> Applied:
    """Merge a run that ended with ``merge: pending``; one that is merged stays as it is."""
    with open_sealed(equipment, run_id) as sealed:
        target, progress = branch or sealed.branch, sealed.progress
        if progress.merge == "merged":
            name, commit = (str(progress.merging[key]) for key in ("branch", "commit"))
            return Applied(run_id, merged=True, branch=name, commit=commit, already=True)
        candidate = str(progress.candidate.get("commit", ""))
        for name, commit in list_landed(equipment.repository, sealed.bundle.directory, candidate):
            if name == target:
                return Applied(run_id, merged=True, branch=name, commit=commit, already=True)
        if progress.merge != "pending":
            raise UsageError(
                f"run {run_id} has nothing to merge: it ended {progress.finished['status']}",
                rule="apply.nothing",
            )
        # Made again from the sealed patches, it must be the candidate that was tested.
        task_ids = [task.task_id for task in progress.active]
        made = candidates.build_candidate(
            sealed, equipment, sealed.baseline, task_ids, candidates.NAME
        )
        if made.commit != candidate:
            raise VerificationFailed(
                f"the patches of run {run_id} make {made.commit}, and {candidate} was tested",
                rule="apply.candidate",
            )
        return _merge(sealed, equipment, target)


class _AuditedRun(Run):
    """The sealed run, with what happens now recorded beside it."""

    def __init__(self, sealed: Run, audit: Bundle, log: EventLog, branch: str) -> None:
        super().__init__(sealed.places, audit, log)
        self.id = sealed.id
        self._sealed = sealed
        self._branch = branch
        self._progress = sealed.progress

    def contract(self, task_id: str) -> TaskContract:
        return self._sealed.contract(task_id)

    def option(self, name: str) -> Json:
        return self._branch if name == "branch" else super().option(name)


def _merge(sealed: Run, equipment: RunDependencies, branch: str) -> Applied:
    equipment.worktrees.sweep()
    audit = new_audit(sealed.bundle.directory, equipment.now(), "apply")
    trace = (sealed.bundle.find(layout.TRACE_ID) or b"").decode("ascii", "replace").strip()
    redact = equipment.secrets.redact
    with EventLog(
        audit / layout.EVENTS,
        sealed.id,
        equipment.key_path,
        redact,
        equipment.clock,
        trace_id=trace,
    ) as log:
        run = _AuditedRun(sealed, Bundle(audit, redact), log, branch)
        outcome = MergeStage(run, Inspection(equipment, run.baseline)).merge()
        commit = str(run.progress.merging.get("commit") or "") if outcome.merged else ""
    value: dict[str, Json] = {
        "run_id": sealed.id,
        "status": "merged" if outcome.merged else "refused",
        "branch": branch,
        "commit": commit,
        "reason": redact(outcome.reason),
        "applied_at": equipment.now(),
    }
    write_atomic(audit / APPLICATION, json_bytes(value))
    return Applied(sealed.id, outcome.merged, branch, commit, outcome.reason, audit=audit)


def list_landed(
    repository: Repository, directory: Path, candidate: str
) -> Iterator[tuple[str, str]]:
    """Yield the branch and commit of each earlier merge that git knows of: what the reports say is
    believed only where it is in the branch, with the work of the run."""
    for done in list_applications(directory, directory.name):
        try:
            tip = repository.branch(done.branch)
            needed = [
                repository.resolve(check_commit_id(each)) for each in (done.commit, candidate)
            ]
        except UsageError:
            # Not the name of a branch, or a commit that is not there: then nothing was merged.
            continue
        if tip is not None and all(repository.is_ancestor(each, tip) for each in needed):
            yield done.branch, done.commit
