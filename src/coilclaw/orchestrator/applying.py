"""``apply``: merging a run's accepted work after the run was sealed, with the same gates.

The evidence of it is an audit: the bundle itself stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coilclaw.errors import UsageError, VerificationFailed
from coilclaw.orchestrator import candidates, layout
from coilclaw.orchestrator.audit_records import APPLICATION, list_applications
from coilclaw.orchestrator.bundle import Bundle, json_bytes, new_audit
from coilclaw.orchestrator.eventlog import EventLog
from coilclaw.orchestrator.inspection import Inspection
from coilclaw.orchestrator.mergestage import MergeStage
from coilclaw.orchestrator.run import Run
from coilclaw.orchestrator.sealedrun import sealed_run
from coilclaw.orchestrator.starting import owned, unknown
from coilclaw.runtime.identity import stamp
from coilclaw.storage.atomic import write_atomic
from coilclaw.workspace.removal import remove_tree
from coilclaw.workspace.repository import checked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from coilclaw.contracts.taskcontract import TaskContract
    from coilclaw.domain.messages import Json
    from coilclaw.orchestrator.equipment import Equipment
    from coilclaw.workspace.repository import Repository


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of it."""

    run_id: str
    merged: bool
    branch: str
    commit: str = ""
    """What the branch stands at now; empty where nothing was merged."""
    reason: str = ""
    already: bool = False
    """Whether it was merged before, so that nothing changed now."""
    audit: Path | None = None
    """Where the evidence is."""


def apply(equipment: Equipment, run_id: str, *, branch: str | None = None) -> Applied:
    """Merge a run that ended with ``merge: pending``; one that is merged stays as it is."""
    if not equipment.places.bundle(run_id).is_dir():
        raise unknown(run_id)
    with owned(equipment, run_id):
        sealed = sealed_run(equipment, run_id)
        target = branch or str(sealed.option("branch") or "")
        done = _merged_before(sealed, equipment, target)
        if done is not None:
            return done
        if sealed.progress.merge != "pending":
            raise UsageError(
                f"run {run_id} has nothing to merge: it ended {sealed.progress.finished['status']}",
                rule="apply.nothing",
            )
        _check_candidate(sealed, equipment)
        return _merge(sealed, equipment, target)


class _Audited(Run):
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


def _merge(sealed: Run, equipment: Equipment, branch: str) -> Applied:
    equipment.worktrees.sweep()
    audit = new_audit(sealed.bundle.directory, stamp(equipment.clock()), "apply")
    log = EventLog(
        audit / layout.EVENTS,
        sealed.id,
        equipment.key_path,
        equipment.secrets.redact,
        equipment.clock,
        trace_id=(sealed.bundle.find(layout.TRACE_ID) or b"").decode("ascii", "replace").strip(),
    )
    with log:
        run = _Audited(sealed, Bundle(audit, equipment.secrets.redact), log, branch)
        inspection = Inspection(equipment, str(run.option("baseline_commit")))
        try:
            outcome = MergeStage(run, equipment, inspection).merge()
        finally:
            home = equipment.places.homes / run.id
            if home.exists():
                remove_tree(home)
        commit = str(run.progress.merging.get("commit") or "") if outcome.merged else ""
    applied = Applied(sealed.id, outcome.merged, branch, commit, outcome.reason, audit=audit)
    _write(applied, equipment, audit)
    return applied


def _write(applied: Applied, equipment: Equipment, audit: Path) -> None:
    value: dict[str, Json] = {
        "run_id": applied.run_id,
        "status": "merged" if applied.merged else "refused",
        "branch": applied.branch,
        "commit": applied.commit,
        "reason": equipment.secrets.redact(applied.reason),
        "applied_at": stamp(equipment.clock()),
    }
    write_atomic(audit / APPLICATION, json_bytes(value))


def _merged_before(sealed: Run, equipment: Equipment, target: str) -> Applied | None:
    """What the run itself or an earlier audit merged, if it is still in the branch."""
    progress = sealed.progress
    if progress.merge == "merged":
        merging = progress.merging
        return Applied(
            sealed.id,
            merged=True,
            branch=str(merging["branch"]),
            commit=str(merging["commit"]),
            already=True,
        )
    candidate = str(progress.candidate.get("commit", ""))
    for branch, commit in landed(equipment.repository, sealed.bundle.directory, candidate):
        if branch == target:
            return Applied(sealed.id, merged=True, branch=branch, commit=commit, already=True)
    return None


def landed(repository: Repository, directory: Path, candidate: str) -> Iterator[tuple[str, str]]:
    """Yield the branch and commit of each earlier merge that git knows of: what the reports say is
    believed only where it is in the branch, with the work of the run."""
    for done in list_applications(directory, directory.name):
        try:
            tip = repository.branch(done.branch)
            needed = [repository.resolve(checked(each)) for each in (done.commit, candidate)]
        except UsageError:
            # No name of a branch, or a commit that is not there: then nothing was merged.
            continue
        if tip is not None and all(repository.is_ancestor(each, tip) for each in needed):
            yield done.branch, done.commit


def _check_candidate(sealed: Run, equipment: Equipment) -> None:
    """Make the candidate again from the sealed patches: it must be the one that was tested."""
    recorded = sealed.progress.candidate
    task_ids = [task.task_id for task in sealed.progress.active]
    baseline = str(sealed.option("baseline_commit"))
    commit, _ = candidates.built(sealed, equipment, baseline, task_ids, candidates.NAME)
    if commit != recorded["commit"]:
        raise VerificationFailed(
            f"the patches of run {sealed.id} make {commit}, and {recorded['commit']} was tested",
            rule="apply.candidate",
        )
