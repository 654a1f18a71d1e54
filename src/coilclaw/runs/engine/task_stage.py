"""S2: the tasks of a run, each in a worktree of its own, at the same time; judged afterwards."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import Budget, EnvironmentFault, UsageError, digest_bytes, schemas
from coilclaw.runners import Assignment, Means
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.contracts.paths import overlaps
from coilclaw.runs.engine.agent_record import (
    AgentRecorder,
    Performed,
    count_lines,
    follow_performance,
    keep_receipts,
    write_reports,
)
from coilclaw.runs.engine.candidate import build_candidate, patch_path
from coilclaw.runs.engine.commands import Commands, run_in_order
from coilclaw.runs.engine.contract_checks import network_ask
from coilclaw.runs.engine.inspection import Inspected, RunStage
from coilclaw.runs.engine.ready_worktree import ReadyWorktree, find_changes
from coilclaw.runs.engine.worktree_setup import prepare_worktree
from coilclaw.runs.evidence import patch_names
from coilclaw.runs.evidence.layout import make_segment
from coilclaw.runs.gates import contract_gates, diff
from coilclaw.runs.gates.result import GateResult, Violation
from coilclaw.runs.roles import prompts
from coilclaw.runs.roles.tech_lead import evidence_prefix
from coilclaw.workspace import roll_back

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coilclaw.runs.contracts.task_contract import TaskContract
    from coilclaw.runs.engine.approvals import RunApprovals
    from coilclaw.runs.evidence.progress import TaskProgress
    from coilclaw.workspace import Snapshot, Worktree

MAX_PARTS: Final = 10_000
MAX_EXCERPT_BYTES: Final = 64 * 2**10
_ANSWER: Final = "agent_task_result.v1"


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where one task is worked on."""

    contract: TaskContract
    worktree: Worktree
    origin: str
    """The snapshot of the baseline: what the work is measured against."""
    start: Snapshot
    """What stood in the worktree when the agent began."""


@dataclass(slots=True)
class TaskStage(RunStage):
    """Has the pending tasks of a run performed."""

    asking: RunApprovals
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def perform(self) -> bool:
        """Bring every task that is not finished to its end; whether all of it was accepted."""
        for wave in self._make_waves():
            self.equipment.check_cancelled()
            with ThreadPoolExecutor(min(len(wave), self.equipment.max_workers)) as pool:
                futures = [pool.submit(self._do_task, task) for task in wave]
            for future in futures:
                # The first that failed for a reason of our own ends the run.
                future.result()
        return all(task.state == "accepted" for task in self.run.progress.active)

    def _make_waves(self) -> list[list[TaskProgress]]:
        """The tasks that may work at the same time: those that share a path take turns."""
        waves: list[list[TaskProgress]] = []
        for task in self.run.progress.active:
            if task.state not in {"pending", "started"}:
                continue
            number = max(
                (i + 1 for i, wave in enumerate(waves) if self._shares(task, wave)), default=0
            )
            if number == len(waves):
                waves.append([])
            waves[number].append(task)
        return waves

    def _shares(self, task: TaskProgress, others: Sequence[TaskProgress]) -> bool:
        mine = self.run.contract(task.task_id).allowed_paths
        return any(
            overlaps(mine, self.run.contract(other.task_id).allowed_paths)
            for other in others
            if other.task_id != task.task_id
        )

    def _do_task(self, task: TaskProgress) -> None:
        run, equipment, task_id = self.run, self.equipment, task.task_id
        equipment.check_cancelled()
        path = run.places.worktree(run.id, task_id)
        below = self._find_below(task)
        ground = self._build(below, f"ground-{task_id}")
        # What is repaired counts only if it left a patch that passed the diff gate.
        repaired = [name for name in task.replaces if run.bundle.has(patch_path(name))]
        start = self._build((*below, *repaired), f"start-{task_id}") if repaired else ground
        origin = self._find_origin(task, below, ground) if start != ground else ""
        with equipment.open_worktree(path, start) as worktree:
            made = {"path": str(path), "commit": worktree.commit}
            run.emit(EventType.WORKTREE_CREATED, made, task_id=task_id)
            began = equipment.snapshots.take(path)
            place = Workplace(run.contract(task_id), worktree, origin or began.id, began)
            started = {
                "runner": run.runner,
                "snapshot": began.id,
                "tree": began.tree,
                "baseline": place.origin,
                "below": list(below),
            }
            run.emit(EventType.TASK_STARTED, started, task_id=task_id)
            performed = self._perform(place)
            equipment.check_cancelled()
            self._judge(place, performed)
        run.emit(EventType.WORKTREE_REMOVED, {"path": str(path)}, task_id=task_id)

    def _find_below(self, task: TaskProgress) -> tuple[str, ...]:
        """The tasks on whose accepted work a task builds: those before it that share its paths."""
        active = self.run.progress.active
        before = active[: [other.task_id for other in active].index(task.task_id)]
        return tuple(
            other.task_id
            for other in before
            if other.state == "accepted" and self._shares(task, [other])
        )

    def _build(self, task_ids: Sequence[str], name: str) -> str:
        """The baseline with the work of some tasks."""
        baseline = self.inspection.baseline
        if not task_ids:
            return baseline
        return build_candidate(self.run, self.equipment, baseline, task_ids, name).commit

    def _find_origin(self, task: TaskProgress, below: tuple[str, ...], ground: str) -> str:
        """The snapshot of the ground that a repair is measured against."""
        for name in task.replaces:
            repaired = self.run.progress.tasks[name]
            if repaired.origin and repaired.below == below:
                # It stood on the same ground, and was measured against it.
                return repaired.origin
        with self._guard:
            return self.equipment.take_snapshot(self.run.id, ground).id

    def _perform(self, place: Workplace) -> Performed:
        equipment, run, inspection = self.equipment, self.run, self.inspection
        runner = equipment.runner(run.runner, place.contract)
        count = partial(count_lines, place.worktree.path, equipment.repository, inspection.baseline)
        started, task_id = equipment.now(), place.contract.task_id
        recorder = AgentRecorder(run, task_id, runner.name, equipment.clock, count)
        scope = inspection.scope(place.contract)
        with prepare_worktree(
            run,
            inspection,
            task_id,
            place.worktree,
            inspection.baseline,
            runner=runner,
            scope=scope,
        ) as worktree:
            assignment = self._assign(place, worktree)
            means = Means(
                approve=self.asking.live,
                cancel=equipment.cancel,
                support=equipment.support,
                run_tests=lambda name: self._run_tests(place.contract, worktree, name),
                on_denied=recorder.deny,
                on_usage=recorder.count,
                on_output=recorder.hear,
            )
            with worktree.in_use():
                ending = follow_performance(runner.perform(assignment, means), recorder.take)
            changes = find_changes(inspection, worktree, scope)
        recorder.end(ending)
        keep_receipts(run, runner, assignment)
        return Performed(ending, len(recorder.parts), started, equipment.now(), changes)

    def _assign(self, place: Workplace, worktree: ReadyWorktree) -> Assignment:
        contract, permissions = place.contract, place.contract.tool_permissions
        home = self.run.places.home(self.run.id, contract.task_id)
        worktree.make_home(home)
        network = permissions.network
        if network == "on-request" and self.asking.is_granted(network_ask(contract)):
            network = "allow"
        options = contract.runtime_options
        return Assignment(
            task_id=contract.task_id,
            instruction=prompts.instruction(contract, list(self._find_excerpts(contract))),
            contract=contract.json(),
            directory=place.worktree.path,
            home=home,
            sandbox=worktree.sandbox(
                home, filesystem=permissions.filesystem, network=network, commits=True
            ),
            environ={**worktree.environ(home), **worktree.mount.environ},
            seen_at=worktree.seen_at,
            budget=Budget(parts=MAX_PARTS, wall_s=float(contract.timeout_retry.timeout_sec)),
            filesystem=permissions.filesystem,
            shell=permissions.effective_shell,
            network=network,
            output_schema=schemas.load_schema(_ANSWER),
            thread_id=contract.assigned_agent.codex_thread_id or "",
            model=(options.model if options else None) or "",
        )

    def _find_excerpts(self, contract: TaskContract) -> Iterator[prompts.EvidenceExcerpt]:
        """What failed before, as far as the contract refers to it."""
        prefix = evidence_prefix(self.run.id)
        for artifact in contract.inputs.artifacts:
            if not artifact.uri.startswith(prefix):
                continue
            data = self.run.bundle.find(artifact.uri.removeprefix(prefix), limit=512 * 2**20)
            if data is not None and digest_bytes(data) == artifact.sha256:
                text = data[-MAX_EXCERPT_BYTES:].decode("utf-8", "replace")
                yield prompts.EvidenceExcerpt(artifact.name, artifact.sha256, text)

    def _run_tests(self, contract: TaskContract, worktree: ReadyWorktree, name: str) -> str:
        """Run the contract's own tests for an agent that asks, in its worktree."""
        home = self.run.places.own_home(self.run.id, f"tests-{make_segment(contract.task_id)}")
        commands = Commands(worktree, home, "deny")
        chosen = [test for test in contract.acceptance_tests if not name or test.name == name]
        if not chosen:
            return f"the contract has no acceptance test {name!r}"
        limit = contract.timeout_retry.timeout_sec
        done = run_in_order(chosen, lambda test: commands.run(test, test.timeout_sec or limit))
        return "\n".join(
            f"{one.test.name}: {'passed' if one.green else 'failed'} (exit code {one.exit_code})\n"
            + (one.stdout + one.stderr)[-4000:].decode("utf-8", "replace")
            for one in done
        )

    def _judge(self, place: Workplace, performed: Performed) -> None:
        run, task_id, ending = self.run, place.contract.task_id, performed.ending
        inspected = self._inspect(place, performed)
        snapshot = {"snapshot": inspected.after.id, "tree": inspected.after.tree}
        run.emit(EventType.SNAPSHOT_TAKEN, {**snapshot, "why": "after the work"}, task_id=task_id)
        problems: tuple[str, ...] = ()
        if ending.result is not None:
            found = schemas.find_schema_problems(_ANSWER, ending.result)
            problems = tuple(f"{each.path}: {each.message}" for each in found)
        # Mechanism 0: the agent's answer must be what its schema says, and for this task.
        answer = contract_gates.judge_output(
            ending.result, schema=_ANSWER, problems=problems, task_id=task_id, reason=ending.reason
        )
        gates = (inspected.result, answer)
        passed = [run.record_gate(gate, task_id=task_id) for gate in gates]
        if ending.status != "done":
            failed = {"status": ending.status, "reason": ending.reason}
            run.emit(EventType.RUNNER_FAILED, failed, task_id=task_id, level="ERROR")
        if not passed[0]:
            self._roll_back(place, inspected)
        status = (ending.result or {}).get("status")
        done = ending.status == "done" and status in {"SUCCESS", "SKIPPED"}
        # What the diff gate refused is evidence of another kind, and never a patch to apply.
        patch = inspected.patch if passed[0] else b""
        names, folder = patch_names.name_only(patch), f"results/{make_segment(task_id)}"
        if passed[0]:
            run.bundle.write_bytes(patch_path(task_id), patch, redact=False)
        run.bundle.write_bytes(f"{folder}/patch.diff", patch, redact=False)
        run.bundle.write_bytes(f"{folder}/diff_name_only.txt", names, redact=False)
        accepted = all(passed) and done
        reference, reason = write_reports(
            run, place.contract, performed, gates, self.inspection.baseline, accepted=accepted
        )
        facts = {
            "status": "SUCCESS" if accepted else "FAILED",
            **snapshot,
            "patch_sha256": digest_bytes(patch) if passed[0] else "",
            "parts": performed.parts,
            "reason": reason,
        }
        kind = EventType.TASK_RESULT_RECORDED
        run.record_report(kind, reference, facts, task_id=task_id, good=accepted)

    def _inspect(self, place: Workplace, performed: Performed) -> Inspected:
        """Look at what the agent left; a tree that cannot even be kept is a violation."""
        scope = self.inspection.scope(place.contract)
        try:
            return self.inspection.look(
                place.worktree.path, place.origin, place.start.id, scope, changes=performed.changes
            )
        except EnvironmentFault as problem:
            if not problem.rule.startswith("snapshot."):
                raise
            violation = Violation("diff.unkeepable", f"the tree cannot be kept: {problem.message}")
            return Inspected(GateResult(diff.NAME, (violation,)), place.start, b"", (), {}, {})

    def _roll_back(self, place: Workplace, inspected: Inspected) -> None:
        """Take the work back; the offending tree stays as a snapshot, and as a patch to look at."""
        rollback, task_id = place.contract.rollback, place.contract.task_id
        rejected = f"artifacts/rejected/{make_segment(task_id)}.diff"
        self.run.bundle.write_bytes(rejected, inspected.patch)
        refused = ""
        try:
            roll_back(
                self.equipment.worktrees,
                place.worktree,
                rollback.strategy,
                self.equipment.snapshots,
                target=rollback.target_ref or "HEAD",
            )
        except UsageError as problem:
            # The files are back; only the commit that the contract names cannot be reverted.
            refused = problem.message
        applied = {
            "strategy": rollback.strategy,
            "snapshot": inspected.after.id,
            "baseline_commit": self.inspection.baseline,
            "refused": refused,
        }
        self.run.emit(EventType.ROLLBACK_APPLIED, applied, task_id=task_id, level="WARN")
