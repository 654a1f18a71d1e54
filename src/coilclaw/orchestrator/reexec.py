"""Re-execution: the baseline, the patch, the gates and the tests once more, and then compared.

Hard: the tree, the names, the commands and their exit codes, what the gates say. Soft: how long it
took, the bytes of the logs and of the patch, the policies. No agent and no model takes part.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.contracts.eventtypes import EventType
from coilclaw.contracts.reading import parse
from coilclaw.contracts.reports import Divergence, ReexecReport, TestReport
from coilclaw.domain.canonical import digest
from coilclaw.errors import GitFailed, PlanRefused, Stopped, UsageError
from coilclaw.gates import tests as tests_gate
from coilclaw.gates import testweakening
from coilclaw.gates.scope import Places as Covered
from coilclaw.orchestrator import layout, patchnames
from coilclaw.orchestrator.audit_records import REEXECUTION
from coilclaw.orchestrator.baseline import Baseline
from coilclaw.orchestrator.bundle import json_bytes, new_audit
from coilclaw.orchestrator.candidates import MAX_PATCH_BYTES
from coilclaw.orchestrator.commands import Commands, in_order
from coilclaw.orchestrator.inspection import Inspection
from coilclaw.orchestrator.places import segment
from coilclaw.orchestrator.ready_worktree import ready
from coilclaw.orchestrator.sealedrun import sealed_run
from coilclaw.orchestrator.starting import owned, unknown
from coilclaw.orchestrator.teststage import outcome_of, planned
from coilclaw.orchestrator.working import snapshot_of
from coilclaw.runtime.identity import stamp
from coilclaw.storage.atomic import write_atomic
from coilclaw.workspace import merging
from coilclaw.workspace.removal import remove_tree

if TYPE_CHECKING:
    from pathlib import Path

    from coilclaw.contracts.reports import TestCommand
    from coilclaw.contracts.taskcontract import TaskContract
    from coilclaw.domain.messages import Json
    from coilclaw.gates.scope import Scope
    from coilclaw.orchestrator.commands import Finished
    from coilclaw.orchestrator.equipment import Equipment
    from coilclaw.orchestrator.inspection import Inspected
    from coilclaw.orchestrator.ready_worktree import ReadyWorktree
    from coilclaw.orchestrator.run import Run

NAME: Final = "reexec"
SLOWER: Final = 2.0
"""A duration differs when it is so many times the other, and more than ``SLOWER_S`` apart."""
SLOWER_S: Final = 1.0
MAX_FILE_BYTES: Final = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Reexecuted:
    """The report, and the audit that it stands in."""

    report: ReexecReport
    audit: Path


def reexecute(equipment: Equipment, run_id: str) -> Reexecuted:
    """Execute a sealed run again as far as it is deterministic, and write down how it compares."""
    if not equipment.places.bundle(run_id).is_dir():
        raise unknown(run_id)
    with owned(equipment, run_id):
        run = sealed_run(equipment, run_id)
        if not run.progress.candidate:
            raise UsageError(
                f"run {run_id} ended before there was anything to execute again",
                rule="reexec.nothing",
                hint=f"see how it went: coilclaw runs replay {run_id}",
            )
        equipment.worktrees.sweep()
        execution = _Execution(run, equipment)
        try:
            execution.go()
        finally:
            home = equipment.places.homes / run.id
            if home.exists():
                remove_tree(home)
        return execution.written()


@dataclass(slots=True)
class _Execution:
    """One re-execution while it goes on."""

    run: Run
    equipment: Equipment
    hard: list[Divergence] = field(default_factory=list)
    soft: list[Divergence] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    logs: dict[str, bytes] = field(default_factory=dict)

    @property
    def baseline(self) -> str:
        return str(self.run.option("baseline_commit"))

    def go(self) -> None:
        """Go as far as it goes; what stops it is an error of the report."""
        repository = self.equipment.repository
        try:
            repository.resolve(self.baseline)
            made = merging.build(
                repository,
                self.equipment.places.git,
                self.baseline,
                [merging.Patch(layout.PATCH, self._patch(), f"{layout.PATCH} of {self.run.id}\n")],
                run_id=self.run.id,
                time=str(self.run.option("created_at")),
                name=NAME,
            )
        except (PlanRefused, UsageError, GitFailed) as problem:
            self.errors.append(problem.message)
            return
        try:
            self._hard("tree", str(self.run.progress.candidate["tree"]), made.tree)
            self._in_worktree(made.commit)
        finally:
            ref = f"{merging.REFS}/{self.run.id}/{NAME}"
            repository.git.run("update-ref", "--no-deref", "-d", ref)

    def _in_worktree(self, commit: str) -> None:
        run, equipment = self.run, self.equipment
        origin = snapshot_of(run, equipment, self.baseline)
        path = run.places.worktree(run.id, NAME)
        worktree = equipment.worktrees.add(path, commit)
        try:
            began = equipment.snapshots.take(path)
            inspection = Inspection(equipment, self.baseline)
            seen = inspection.look(path, origin.id, began.id, self._scope(inspection))
            self._diffed(seen)
            self._policies()
            recorded = self._recorded()
            if recorded is not None:
                with ready(run, inspection, NAME, worktree, commit) as made:
                    self._tested(made, began.tree, recorded, seen)
        finally:
            equipment.worktrees.remove(worktree)

    def _diffed(self, seen: Inspected) -> None:
        names = self.run.bundle.read(layout.NAMES, limit=MAX_PATCH_BYTES)
        self._hard("names", _lines(names), _lines(patchnames.name_only(seen.patch)))
        self._hard("gates.diff_gate", [], [str(each) for each in seen.result.violations])
        self._soft("patch.sha256", digest(self._patch()), digest(seen.patch))

    def _policies(self) -> None:
        now = self.equipment.policies(self.baseline)
        self._soft("policies.sha256", self.run.option("policy_sha256"), now.sha256)
        repository = self.equipment.repository
        known = Baseline.of(
            self.baseline,
            repository.files(self.baseline),
            lambda name: repository.read(self.baseline, name, MAX_FILE_BYTES),
            repository.links(self.baseline),
        )
        root = self.run.root_contract
        policies = now.under(now.pack_for(root))
        refused = [
            said
            for contract in self._contracts()
            for test in contract.acceptance_tests
            for said in known.refusals(test, contract, policies)
        ]
        refused += [
            str(violation)
            for contract in self._contracts()
            for result in known.judge_setup(contract, policies)
            for violation in result.violations
        ]
        self._hard("gates.tool_gate", [], list(refused))

    def _tested(
        self, worktree: ReadyWorktree, tree: str, recorded: TestReport, seen: Inspected
    ) -> None:
        """Run the tests, unless the command gate refuses them now."""
        if any(one.key == "gates.tool_gate" for one in self.hard):
            self.errors.append("the command gate refuses the acceptance tests")
            return
        run, todo = self.run, planned(self.run)
        network = run.root_contract.tool_permissions.network
        commands = Commands(
            worktree,
            run.places.home(run.id, f"{NAME}.tests"),
            "allow" if network == "allow" else "deny",
        )
        limits = {id(each.test): each.timeout_sec for each in todo}
        done = in_order(
            (each.test for each in todo),
            lambda test: commands.run(test, limits[id(test)]),
            worktree.renew,
        )
        cancel = self.equipment.cancel
        if cancel.cancelled:
            raise Stopped(f"the re-execution was stopped: {cancel.reason}")
        gate = tests_gate.judge(
            [(each.test.name, each.test.cmd, each.test.must_pass) for each in todo],
            [outcome_of(one) for one in done],
            tested_tree=tree,
            candidate_tree=tree,
            weakened=testweakening.weakened(*self._guarded(seen), self._paths(seen)),
        )
        self._hard("gates.tests_gate", self._passed("tests_gate"), gate.passed)
        self._compare(recorded, done)

    def _compare(self, recorded: TestReport, done: tuple[Finished, ...]) -> None:
        self._hard(
            "tests.commands",
            [list(one.cmd_argv) for one in recorded.commands],
            [list(one.argv) for one in done],
        )
        for number, (old, new) in enumerate(zip(recorded.commands, done, strict=False), 1):
            key = f"tests.{number:03}-{segment(old.name)}"
            self._hard(f"{key}.exit_code", old.exit_code, new.exit_code)
            self._compare_softly(key, old, new)

    def _compare_softly(self, key: str, old: TestCommand, new: Finished) -> None:
        low, high = sorted((old.duration_sec, new.duration_sec))
        if high - low > SLOWER_S and high > low * SLOWER:
            self._soft(f"{key}.duration_sec", old.duration_sec, round(new.duration_sec, 3))
        for name, kept, data in (
            ("stdout", old.stdout.sha256, new.stdout),
            ("stderr", old.stderr.sha256, new.stderr),
        ):
            clean = self._clean(data)
            self.logs[f"{key.removeprefix('tests.')}.{name}.log"] = clean
            self._soft(f"{key}.{name}.sha256", kept, digest(clean))

    def _paths(self, seen: Inspected) -> list[str]:
        return [path for path, _, _ in self.equipment.snapshots.files(seen.after.id)]

    def _guarded(self, seen: Inspected) -> tuple[dict[str, bytes | None], dict[str, bytes | None]]:
        """The changed files of the tasks that may not weaken tests."""
        strict = [one for one in self._contracts()[1:] if not one.may_change_tests]
        covered = Covered.of(path for one in strict for path in one.allowed_paths)
        old = {path: data for path, data in seen.old.items() if covered.cover(path)}
        return old, {path: data for path, data in seen.new.items() if covered.cover(path)}

    def _contracts(self) -> list[TaskContract]:
        run = self.run
        return [run.root_contract, *(run.contract(task.task_id) for task in run.progress.active)]

    def _scope(self, inspection: Inspection) -> Scope:
        """What all tasks together were allowed."""
        from dataclasses import replace

        tasks = self._contracts()[1:]
        scopes = [inspection.scope(contract) for contract in tasks]
        return replace(
            scopes[0],
            allowed_paths=tuple(dict.fromkeys(p for one in scopes for p in one.allowed_paths)),
            binary_paths=tuple(dict.fromkeys(p for one in scopes for p in one.binary_paths)),
            read_only=all(one.read_only for one in scopes),
        )

    def _recorded(self) -> TestReport | None:
        """The last report of tests on the candidate; ``None``: the run did not come so far."""
        path = ""
        for event in self.run.log.read():
            payload = event["payload"]
            if event["event_type"] == EventType.TEST_RESULT and isinstance(payload, dict):
                path = str(payload["path"]) if payload.get("where") != "merged" else path
        return TestReport.of(parse(self.run.bundle.read(path))) if path else None

    def _passed(self, gate: str) -> bool:
        found = False
        for event in self.run.log.read():
            payload = event["payload"]
            if isinstance(payload, dict) and payload.get("gate") == gate and "passed" in payload:
                found = payload["passed"] is True
        return found

    def _patch(self) -> bytes:
        return self.run.bundle.read(layout.PATCH, limit=MAX_PATCH_BYTES)

    def _clean(self, data: bytes) -> bytes:
        text = self.equipment.secrets.redact(data.decode("utf-8", "surrogateescape"))
        return text.encode("utf-8", "surrogateescape")

    def _hard(self, key: str, expected: Json, actual: Json) -> None:
        if expected != actual:
            self.hard.append(Divergence(key=key, expected=expected, actual=actual))

    def _soft(self, key: str, expected: Json, actual: Json) -> None:
        if expected != actual:
            self.soft.append(Divergence(key=key, expected=expected, actual=actual))

    def written(self) -> Reexecuted:
        """Put the report and the logs into an audit."""
        now = stamp(self.equipment.clock())
        passed = not self.hard and not self.errors
        report = ReexecReport(
            run_id=self.run.id,
            status="pass" if passed else "fail",
            reexec_ts=now,
            hard_equal_pass=not self.hard,
            soft_equal_pass=not self.soft,
            hard_diffs=tuple(self.hard),
            soft_diffs=tuple(self.soft),
            errors=tuple(self.equipment.secrets.redact(each) for each in self.errors),
        )
        audit = new_audit(self.run.bundle.directory, now, NAME)
        for name, data in self.logs.items():
            write_atomic(audit / name, data)
        write_atomic(audit / REEXECUTION, json_bytes(report.json()))
        return Reexecuted(report, audit)


def _lines(data: bytes) -> list[Json]:
    return [line.decode("utf-8", "backslashreplace") for line in data.splitlines()]
