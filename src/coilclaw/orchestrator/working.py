"""S2: the tasks of a run, each in a worktree of its own, at the same time; judged afterwards."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.agents.runner import Assignment, Ending, Means
from coilclaw.contracts import schemas
from coilclaw.contracts.eventtypes import EventType
from coilclaw.contracts.paths import overlaps
from coilclaw.contracts.results import AgentTaskResult
from coilclaw.domain.budget import Budget
from coilclaw.domain.canonical import digest
from coilclaw.errors import EnvironmentFault, Stopped, UsageError
from coilclaw.gates import outputschema
from coilclaw.gates.result import GateResult, Violation
from coilclaw.orchestrator import patchnames, roleprompts, taskreports
from coilclaw.orchestrator.commands import Commands, in_order
from coilclaw.orchestrator.dependency_changes import find_changes
from coilclaw.orchestrator.fixing import evidence_prefix
from coilclaw.orchestrator.inspection import Inspected
from coilclaw.orchestrator.line_counts import LineCounts
from coilclaw.orchestrator.places import segment
from coilclaw.orchestrator.ready_worktree import ready
from coilclaw.orchestrator.recording import Recorder, keep_receipts, played
from coilclaw.runtime.identity import stamp
from coilclaw.workspace.rollback import roll_back

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coilclaw.agents.runner import Network
    from coilclaw.contracts.taskcontract import TaskContract
    from coilclaw.domain.messages import Json
    from coilclaw.orchestrator.asking import Asking
    from coilclaw.orchestrator.dependency_changes import DependencyChanges
    from coilclaw.orchestrator.equipment import Equipment
    from coilclaw.orchestrator.inspection import Inspection
    from coilclaw.orchestrator.progress import TaskProgress
    from coilclaw.orchestrator.ready_worktree import ReadyWorktree
    from coilclaw.orchestrator.run import Run
    from coilclaw.workspace.snapshot import Snapshot
    from coilclaw.workspace.worktrees import Worktree

MAX_PARTS: Final = 10_000
MAX_EXCERPT_BYTES: Final = 64 * 2**10
RUNNER_RULE: Final = "runner.failed"


@dataclass(frozen=True, slots=True)
class Performed:
    """What an agent did, as it told it."""

    ending: Ending
    parts: int
    started: str
    finished: str
    changes: DependencyChanges
    """Of what is not tracked and was there for it."""


@dataclass(frozen=True, slots=True)
class Desk:
    """One task's place of work."""

    task: TaskProgress
    contract: TaskContract
    worktree: Worktree
    origin: str
    """The snapshot of the baseline: what the work is measured against."""
    start: Snapshot
    """What stood in the worktree when the agent began."""


class Working:
    """Has the pending tasks of a run performed."""

    def __init__(
        self, run: Run, equipment: Equipment, inspection: Inspection, asking: Asking
    ) -> None:
        self._run = run
        self._equipment = equipment
        self._inspection = inspection
        self._asking = asking
        self._guard = threading.Lock()

    def perform(self) -> bool:
        """Bring every task that is not finished to its end; whether all of it was accepted."""
        for wave in self._waves():
            self._check_stop()
            with ThreadPoolExecutor(min(len(wave), self._equipment.max_workers)) as pool:
                futures = [pool.submit(self._task, task) for task in wave]
            for future in futures:
                # The first that failed for a reason of our own ends the run.
                future.result()
        return all(task.state == "accepted" for task in self._run.progress.active)

    def _waves(self) -> list[list[TaskProgress]]:
        """The tasks that may work at the same time: those that share a path take turns."""
        waves: list[list[TaskProgress]] = []
        for task in self._run.progress.active:
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
        mine = self._run.contract(task.task_id).allowed_paths
        return any(
            overlaps(mine, self._run.contract(other.task_id).allowed_paths)
            for other in others
            if other.task_id != task.task_id
        )

    def _task(self, task: TaskProgress) -> None:
        self._check_stop()
        contract = self._run.contract(task.task_id)
        path = self._run.places.worktree(self._run.id, task.task_id)
        below = self._below(task)
        ground = self._commit(below, f"ground-{task.task_id}")
        repaired = [name for name in task.replaces if self._kept(name)]
        start = self._commit((*below, *repaired), f"start-{task.task_id}") if repaired else ground
        origin = self._origin(task, below, ground) if start != ground else ""
        worktrees = self._equipment.worktrees
        worktree = worktrees.add(path, start)
        try:
            self._run.emit(
                EventType.WORKTREE_CREATED,
                {"path": str(path), "commit": worktree.commit},
                task_id=task.task_id,
            )
            began = self._equipment.snapshots.take(path)
            desk = Desk(task, contract, worktree, origin or began.id, began)
            self._run.emit(
                EventType.TASK_STARTED,
                {
                    "runner": str(self._run.option("runner")),
                    "snapshot": began.id,
                    "tree": began.tree,
                    "baseline": desk.origin,
                    "below": list(below),
                },
                task_id=task.task_id,
            )
            performed = self._performed(desk)
            self._check_stop()
            self._judge(desk, performed)
        finally:
            worktrees.remove(worktree)
        self._run.emit(EventType.WORKTREE_REMOVED, {"path": str(path)}, task_id=task.task_id)

    def _below(self, task: TaskProgress) -> tuple[str, ...]:
        """The tasks on whose accepted work a task builds: those before it that share its paths."""
        found: list[str] = []
        for other in self._run.progress.active:
            if other.task_id == task.task_id:
                break
            if other.state == "accepted" and self._shares(task, [other]):
                found.append(other.task_id)
        return tuple(found)

    def _commit(self, task_ids: Sequence[str], name: str) -> str:
        """The baseline with the work of some tasks."""
        from coilclaw.orchestrator.candidates import built

        baseline = self._inspection.baseline
        if not task_ids:
            return baseline
        return built(self._run, self._equipment, baseline, task_ids, name)[0]

    def _kept(self, task_id: str) -> bool:
        """Whether a task left a patch that passed the diff gate."""
        return self._run.bundle.has(patch_path(task_id))

    def _origin(self, task: TaskProgress, below: tuple[str, ...], ground: str) -> str:
        """The snapshot of the ground that a repair is measured against."""
        for name in task.replaces:
            repaired = self._run.progress.tasks[name]
            if repaired.origin and repaired.below == below:
                # It stood on the same ground, and was measured against it.
                return repaired.origin
        with self._guard:
            return snapshot_of(self._run, self._equipment, ground).id

    def _performed(self, desk: Desk) -> Performed:
        equipment, run, task_id = self._equipment, self._run, desk.task.task_id
        runner = equipment.runner(str(run.option("runner")), desk.contract)
        inspection = self._inspection
        counts = LineCounts(desk.worktree.path, equipment.repository, inspection.baseline)
        started = stamp(equipment.clock())
        recorder = Recorder(run, task_id, runner.name, equipment.clock, count_lines=counts.count)
        scope = inspection.scope(desk.contract)
        with ready(
            run, inspection, task_id, desk.worktree, inspection.baseline, runner=runner, scope=scope
        ) as worktree:
            assignment = self._assignment(desk, worktree)
            means = Means(
                approve=self._asking.live,
                cancel=equipment.cancel,
                support=equipment.support,
                run_tests=lambda path: self._tested(desk, worktree, path),
                on_denied=recorder.deny,
                on_usage=recorder.count,
                on_output=recorder.hear,
            )
            with worktree.in_use():
                ending = played(runner.perform(assignment, means), recorder.take)
            changes = find_changes(inspection, worktree, scope)
        recorder.end(ending)
        keep_receipts(run, runner, assignment)
        finished = stamp(equipment.clock())
        return Performed(ending, len(recorder.parts), started, finished, changes)

    def _assignment(self, desk: Desk, worktree: ReadyWorktree) -> Assignment:
        contract = desk.contract
        permissions = contract.tool_permissions
        home = self._run.places.home(self._run.id, desk.task.task_id)
        worktree.make_home(home)
        network = self._network(contract)
        options = contract.runtime_options
        return Assignment(
            task_id=contract.task_id,
            instruction=roleprompts.instruction(contract, self._excerpts(contract)),
            contract=contract.json(),
            directory=desk.worktree.path,
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
            output_schema=schemas.document("agent_task_result.v1"),
            thread_id=contract.assigned_agent.codex_thread_id or "",
            model=(options.model if options else None) or "",
        )

    def _network(self, contract: TaskContract) -> Network:
        wanted = contract.tool_permissions.network
        return "allow" if wanted == "on-request" and self._granted(contract) else wanted

    def _granted(self, contract: TaskContract) -> bool:
        from coilclaw.orchestrator.contract_gates import network_ask

        return self._asking.granted(network_ask(contract))

    def _excerpts(self, contract: TaskContract) -> Sequence[roleprompts.Excerpt]:
        """What failed before, as far as the contract refers to it."""
        found = []
        for artifact in contract.inputs.artifacts:
            path = artifact.uri.removeprefix(evidence_prefix(self._run.id))
            if artifact.uri == path:
                continue
            data = self._run.bundle.find(path, limit=512 * 2**20)
            if data is not None and digest(data) == artifact.sha256:
                text = data[-MAX_EXCERPT_BYTES:].decode("utf-8", "replace")
                found.append(roleprompts.Excerpt(artifact.name, artifact.sha256, text))
        return found

    def _tested(self, desk: Desk, worktree: ReadyWorktree, path: str) -> str:
        """Run the contract's own tests for an agent that asks, in its worktree."""
        contract = desk.contract
        commands = Commands(
            worktree,
            self._run.places.own_home(self._run.id, f"tests-{segment(desk.task.task_id)}"),
            "deny",
        )
        chosen = [test for test in contract.acceptance_tests if not path or test.name == path]
        if not chosen:
            return f"there is no acceptance test {path!r}"
        limit = contract.timeout_retry.timeout_sec
        done = in_order(chosen, lambda test: commands.run(test, test.timeout_sec or limit))
        lines = [
            f"{one.test.name}: {'passed' if one.green else 'failed'} (exit code {one.exit_code})\n"
            + (one.stdout + one.stderr)[-4000:].decode("utf-8", "replace")
            for one in done
        ]
        return "\n".join(lines)

    def _judge(self, desk: Desk, performed: Performed) -> None:
        task_id = desk.task.task_id
        inspected = self._inspected(desk, performed.changes)
        self._run.emit(
            EventType.SNAPSHOT_TAKEN,
            {"snapshot": inspected.after.id, "tree": inspected.after.tree, "why": "after the work"},
            task_id=task_id,
        )
        gates = [inspected.result, self._answer_result(desk, performed)]
        passed = [self._run.judged(gate, task_id=task_id) for gate in gates]
        ending = performed.ending
        if ending.status != "done":
            self._run.emit(
                EventType.RUNNER_FAILED,
                {"status": ending.status, "reason": ending.reason},
                task_id=task_id,
                level="ERROR",
            )
        if not passed[0]:
            self._roll_back(desk, inspected)
        accepted = all(passed) and ending.status == "done" and _succeeded(ending)
        self._record(desk, performed, inspected, gates, accepted=accepted)

    def _inspected(self, desk: Desk, changes: DependencyChanges) -> Inspected:
        """Look at what the agent left; a tree that cannot even be kept is a violation."""
        scope = self._inspection.scope(desk.contract)
        try:
            return self._inspection.look(
                desk.worktree.path, desk.origin, desk.start.id, scope, changes=changes
            )
        except EnvironmentFault as problem:
            if not problem.rule.startswith("snapshot."):
                raise
            violation = Violation("diff.unkeepable", f"the tree cannot be kept: {problem.message}")
            return Inspected(GateResult("diff_gate", (violation,)), desk.start, b"", (), {}, {})

    def _answer_result(self, desk: Desk, performed: Performed) -> GateResult:
        """Mechanism 0: the agent's answer must be what its schema says, and for this task."""
        ending = performed.ending
        return outputschema.judge(
            ending.result,
            schema="agent_task_result.v1",
            problems=tuple(
                f"{each.path}: {each.message}"
                for each in schemas.problems("agent_task_result.v1", ending.result)
            )
            if ending.result is not None
            else (),
            task_id=desk.contract.task_id,
            reason=ending.reason,
        )

    def _roll_back(self, desk: Desk, inspected: Inspected) -> None:
        """Take the work back; the offending tree stays as a snapshot, and as a patch to look at."""
        contract, name = desk.contract, segment(desk.task.task_id)
        self._run.bundle.write_bytes(f"artifacts/rejected/{name}.diff", inspected.patch)
        refused = ""
        try:
            roll_back(
                self._equipment.worktrees,
                desk.worktree,
                contract.rollback.strategy,
                self._equipment.snapshots,
                target=contract.rollback.target_ref or "HEAD",
            )
        except UsageError as problem:
            # The files are back; only the commit that the contract names cannot be reverted.
            refused = problem.message
        self._run.emit(
            EventType.ROLLBACK_APPLIED,
            {
                "strategy": contract.rollback.strategy,
                "snapshot": inspected.after.id,
                "baseline_commit": self._inspection.baseline,
                "refused": refused,
            },
            task_id=desk.task.task_id,
            level="WARN",
        )

    def _record(
        self,
        desk: Desk,
        performed: Performed,
        inspected: Inspected,
        gates: list[GateResult],
        *,
        accepted: bool,
    ) -> None:
        run, task_id = self._run, desk.task.task_id
        # What the diff gate refused is evidence of another kind, and never a patch to apply.
        patch = inspected.patch if gates[0].passed else b""
        if gates[0].passed:
            run.bundle.write_bytes(patch_path(task_id), patch, redact=False)
            run.bundle.write_bytes(result_path(task_id, "patch.diff"), patch, redact=False)
        run.bundle.write_bytes(
            result_path(task_id, "diff_name_only.txt"), patchnames.name_only(patch), redact=False
        )
        if not gates[0].passed:
            run.bundle.write_bytes(result_path(task_id, "patch.diff"), b"", redact=False)
        facts = taskreports.Facts(
            accepted=accepted,
            performed=performed,
            gates=tuple(gates),
            baseline=self._inspection.baseline,
        )
        reference = taskreports.write(run, desk.contract, facts)
        run.emit(
            EventType.TASK_RESULT_RECORDED,
            {
                "status": "SUCCESS" if accepted else "FAILED",
                "snapshot": inspected.after.id,
                "tree": inspected.after.tree,
                "patch_sha256": digest(patch) if gates[0].passed else "",
                "path": reference.path,
                "sha256": reference.sha256,
                "parts": performed.parts,
                "reason": taskreports.failure(facts),
            },
            task_id=task_id,
            level="INFO" if accepted else "ERROR",
        )

    def _check_stop(self) -> None:
        cancel = self._equipment.cancel
        if cancel.cancelled:
            raise Stopped(f"the run was stopped: {cancel.reason}")


def snapshot_of(run: Run, equipment: Equipment, commit: str) -> Snapshot:
    """Take a snapshot of a commit in a worktree made for it."""
    path = run.places.own_worktree(run.id, "baseline")
    worktree = equipment.worktrees.add(path, commit)
    try:
        return equipment.snapshots.take(path)
    finally:
        equipment.worktrees.remove(worktree)


def patch_path(task_id: str) -> str:
    """Where the accepted patch of a task stands in the bundle."""
    return f"patches/{segment(task_id)}.diff"


def result_path(task_id: str, name: str) -> str:
    """Where something of a task's result stands in the bundle."""
    return f"results/{segment(task_id)}/{name}"


def _succeeded(ending: Ending) -> bool:
    result: dict[str, Json] = dict(ending.result or {})
    return result.get("status") in {"SUCCESS", "SKIPPED"}


def agent_result(ending: Ending) -> AgentTaskResult | None:
    """The agent's own word as a record, where it is one."""
    value = ending.result
    if value is None or schemas.problems("agent_task_result.v1", value):
        return None
    return AgentTaskResult.of(value)
