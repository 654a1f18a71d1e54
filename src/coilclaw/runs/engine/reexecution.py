"""Re-execution: the baseline, the patch, the gates and the tests once more, and then compared.

Hard: the tree, the names, the commands and their exit codes, what the gates say. Soft: how long it
took, the bytes of the logs and of the patch, the policies. No agent and no model takes part.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import GitFailed, PlanRefused, Stopped, UsageError, digest_bytes, write_atomic
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.contracts.records import Divergence, ReexecReport, TestCommand, TestReport
from coilclaw.runs.contracts.task_contract import parse_document
from coilclaw.runs.engine.candidate import MAX_PATCH_BYTES, judge_tests, list_tests
from coilclaw.runs.engine.commands import Commands, FinishedCommand, run_in_order
from coilclaw.runs.engine.contract_checks import Baseline
from coilclaw.runs.engine.inspection import Inspected, Inspection
from coilclaw.runs.engine.run_start import open_sealed
from coilclaw.runs.engine.worktree_setup import prepare_worktree
from coilclaw.runs.evidence import layout, patch_names
from coilclaw.runs.evidence.audits import REEXECUTION
from coilclaw.runs.evidence.bundle import json_bytes, new_audit
from coilclaw.runs.gates import weakened_tests
from coilclaw.runs.gates.scope import ScopePlaces as Covered
from coilclaw.workspace import merge

if TYPE_CHECKING:
    from pathlib import Path

    from coilclaw.kernel import Json
    from coilclaw.runs.engine.ready_worktree import ReadyWorktree
    from coilclaw.runs.engine.run import Run, RunDependencies
    from coilclaw.runs.gates.scope import Scope

NAME: Final = "reexec"
SLOWER: Final = 2.0
"""A duration differs when it is so many times the other, and more than ``SLOWER_S`` apart."""
SLOWER_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Reexecuted:
    """The report, and the audit that it stands in."""

    report: ReexecReport
    audit: Path


def reexecute(equipment: RunDependencies, run_id: str) -> Reexecuted:
    """Execute a sealed run again as far as it is deterministic, and write down how it compares."""
    with open_sealed(equipment, run_id) as run:
        if not run.progress.candidate:
            raise UsageError(
                f"run {run_id} ended before there was anything to execute again",
                rule="reexec.nothing",
                hint=f"see how it went: coilclaw runs replay {run_id}",
            )
        equipment.worktrees.sweep()
        execution = _Execution(run, equipment)
        execution.execute()
        return execution.write()


@dataclass(slots=True)
class _Execution:
    """One re-execution while it goes on."""

    run: Run
    equipment: RunDependencies
    hard: list[Divergence] = field(default_factory=list)
    soft: list[Divergence] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    logs: dict[str, bytes] = field(default_factory=dict)

    def execute(self) -> None:
        """Go as far as it goes; what stops it is an error of the report."""
        run, repository = self.run, self.equipment.repository
        patch = run.bundle.read(layout.PATCH, limit=MAX_PATCH_BYTES)
        try:
            repository.resolve(run.baseline)
            made = merge.build_candidate(
                repository,
                self.equipment.places.git,
                run.baseline,
                [merge.Patch(layout.PATCH, patch, f"{layout.PATCH} of {run.id}\n")],
                run_id=run.id,
                time=str(run.option("created_at")),
                name=NAME,
            )
        except (PlanRefused, UsageError, GitFailed) as problem:
            self.errors.append(problem.message)
            return
        try:
            self._compare("tree", str(run.progress.candidate["tree"]), made.tree)
            self._judge_worktree(made.commit, patch)
        finally:
            ref = f"{merge.REFS}/{run.id}/{NAME}"
            repository.git.run("update-ref", "--no-deref", "-d", ref)

    def _judge_worktree(self, commit: str, patch: bytes) -> None:
        run, equipment = self.run, self.equipment
        origin = equipment.take_snapshot(run.id, run.baseline)
        path = run.places.worktree(run.id, NAME)
        with equipment.open_worktree(path, commit) as worktree:
            began = equipment.snapshots.take(path)
            inspection = Inspection(equipment, run.baseline)
            seen = inspection.look(path, origin.id, began.id, self._join_scopes(inspection))
            names = run.bundle.read(layout.NAMES, limit=MAX_PATCH_BYTES)
            self._compare(
                "names", _split_lines(names), _split_lines(patch_names.name_only(seen.patch))
            )
            self._compare("gates.diff_gate", [], [str(each) for each in seen.result.violations])
            self._compare("patch.sha256", digest_bytes(patch), digest_bytes(seen.patch), soft=True)
            self._compare_policies()
            path_of_report = self._find_last("path", EventType.TEST_RESULT, unless="merged")
            if path_of_report:
                recorded = TestReport.of(parse_document(run.bundle.read(str(path_of_report))))
                with prepare_worktree(run, inspection, NAME, worktree, commit) as made:
                    self._test(made, began.tree, recorded, seen)

    def _compare_policies(self) -> None:
        run = self.run
        now = self.equipment.policies(run.baseline)
        self._compare("policies.sha256", run.option("policy_sha256"), now.sha256, soft=True)
        known = Baseline.at(self.equipment.repository, run.baseline)
        policies = now.under(now.pack_for(run.root_contract))
        contracts = [run.root_contract, *run.active_contracts]
        refused: list[Json] = []
        for contract in contracts:
            for test in contract.acceptance_tests:
                refused += known.refusals(test, contract, policies)
        for contract in contracts:
            for result in known.judge_setup(contract, policies):
                refused += map(str, result.violations)
        self._compare("gates.tool_gate", [], refused)

    def _test(
        self, worktree: ReadyWorktree, tree: str, recorded: TestReport, seen: Inspected
    ) -> None:
        """Run the tests, unless the command gate refuses them now."""
        if any(one.key == "gates.tool_gate" for one in self.hard):
            self.errors.append("the command gate refuses the acceptance tests")
            return
        run, todo, cancel = self.run, list_tests(self.run), self.equipment.cancel
        home = run.places.home(run.id, f"{NAME}.tests")
        commands = Commands(worktree, home, run.test_network)
        done = run_in_order(
            (each.test for each in todo),
            lambda test: commands.run(test, test.timeout_sec or 0),
            worktree.renew,
        )
        if cancel.cancelled:
            raise Stopped(f"the re-execution was stopped: {cancel.reason}")
        # The changed files of the tasks that may not weaken tests.
        strict = [one for one in run.active_contracts if not one.may_change_tests]
        covered = Covered.of(path for one in strict for path in one.allowed_paths)
        old, new = (
            {path: data for path, data in files.items() if covered.cover(path)}
            for files in (seen.old, seen.new)
        )
        paths = [path for path, _, _ in self.equipment.snapshots.files(seen.after.id)]
        gate = judge_tests(
            todo, done, (tree, tree), weakened_tests.find_weakened_tests(old, new, paths)
        )
        passed = self._find_last("passed", EventType.TESTS_GATE_RESULT) is True
        self._compare("gates.tests_gate", passed, gate.passed)
        self._compare(
            "tests.commands",
            [list(one.cmd_argv) for one in recorded.commands],
            [list(one.argv) for one in done],
        )
        for number, (before, after) in enumerate(zip(recorded.commands, done, strict=False), 1):
            self._compare_command(
                f"tests.{number:03}-{layout.make_segment(before.name)}", before, after
            )

    def _compare_command(self, key: str, old: TestCommand, new: FinishedCommand) -> None:
        self._compare(f"{key}.exit_code", old.exit_code, new.exit_code)
        low, high = sorted((old.duration_sec, new.duration_sec))
        if high - low > SLOWER_S and high > low * SLOWER:
            took = round(new.duration_sec, 3)
            self._compare(f"{key}.duration_sec", old.duration_sec, took, soft=True)
        for name, kept, data in (
            ("stdout", old.stdout.sha256, new.stdout),
            ("stderr", old.stderr.sha256, new.stderr),
        ):
            text = self.equipment.secrets.redact(data.decode("utf-8", "surrogateescape"))
            clean = text.encode("utf-8", "surrogateescape")
            self.logs[f"{key.removeprefix('tests.')}.{name}.log"] = clean
            self._compare(f"{key}.{name}.sha256", kept, digest_bytes(clean), soft=True)

    def _join_scopes(self, inspection: Inspection) -> Scope:
        """What all tasks together were allowed."""
        scopes = [inspection.scope(contract) for contract in self.run.active_contracts]
        return replace(
            scopes[0],
            allowed_paths=tuple(dict.fromkeys(p for one in scopes for p in one.allowed_paths)),
            binary_paths=tuple(dict.fromkeys(p for one in scopes for p in one.binary_paths)),
            read_only=all(one.read_only for one in scopes),
        )

    def _find_last(self, key: str, kind: EventType, *, unless: str = "") -> Json:
        """Return what the last event of a type says; ``None``: the run did not come so far."""
        found: Json = None
        for event in self.run.log.read():
            payload = event["payload"]
            if event["event_type"] != kind or not isinstance(payload, dict):
                continue
            if not unless or payload.get("where") != unless:
                found = payload.get(key)
        return found

    def _compare(self, key: str, expected: Json, actual: Json, *, soft: bool = False) -> None:
        if expected != actual:
            found = self.soft if soft else self.hard
            found.append(Divergence(key=key, expected=expected, actual=actual))

    def write(self) -> Reexecuted:
        """Put the report and the logs into an audit."""
        now = self.equipment.now()
        report = ReexecReport(
            run_id=self.run.id,
            status="fail" if self.hard or self.errors else "pass",
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


def _split_lines(data: bytes) -> list[Json]:
    return [line.decode("utf-8", "backslashreplace") for line in data.splitlines()]
