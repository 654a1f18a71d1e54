"""S4: exactly the acceptance tests, run by the orchestrator, on the tree that is to be merged.

The baseline is tried in the same way before an agent starts.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import ChangeKind, EnvironmentFault, PlanRefused, quote_text, valid_text
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.contracts.records import Failure
from coilclaw.runs.engine.commands import (
    Commands,
    FinishedCommand,
    announce,
    describe_fault,
    run_in_order,
    unused_folder,
    write_report,
)
from coilclaw.runs.engine.inspection import Inspection, RunStage
from coilclaw.runs.engine.worktree_setup import prepare_worktree
from coilclaw.runs.evidence import patch_names
from coilclaw.runs.evidence.layout import make_segment
from coilclaw.runs.gates import tests as tests_gate
from coilclaw.runs.gates.result import GateResult, Violation
from coilclaw.runs.gates.test_files import is_read_unasked, is_test, is_test_configuration
from coilclaw.runs.gates.tests import find_whether_tests_ran
from coilclaw.workspace import merge

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coilclaw.runs.contracts.task_contract import AcceptanceTest
    from coilclaw.runs.engine.ready_worktree import ReadyWorktree
    from coilclaw.runs.engine.run import Run, RunDependencies
    from coilclaw.workspace import Snapshot


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


def patch_path(task_id: str) -> str:
    """Return where the accepted patch of a task stands in the bundle."""
    return f"patches/{make_segment(task_id)}.diff"


def build_candidate(
    run: Run, equipment: RunDependencies, baseline: str, task_ids: Sequence[str], name: str
) -> merge.MergeCandidate:
    """Make the commit of the baseline and some patches.

    It is the same commit each time: same tree, same message, same time. Patches that do not go
    together are a ``PlanRefused``.
    """
    patches = []
    for task_id in task_ids:
        first = " ".join(printable(run.contract(task_id).inputs.spec).split())[:120]
        message = f"{task_id}: {first}\n\nRun: {run.id}\n"
        patches.append(merge.Patch(task_id, _read_patch(run, task_id), message))
    return merge.build_candidate(
        equipment.repository,
        equipment.places.git,
        baseline,
        patches,
        run_id=run.id,
        time=str(run.option("created_at")),
        name=make_segment(name),
    )


@contextmanager
def open_candidate(run: Run, inspection: Inspection) -> Iterator[Candidate]:
    """Open the candidate of the tasks as they are; its worktree goes when it is closed."""
    equipment, baseline = inspection.equipment, inspection.baseline
    task_ids = [task.task_id for task in run.progress.active]
    made = build_candidate(run, equipment, baseline, task_ids, NAME)
    path, commit = run.places.own_worktree(run.id, NAME), made.commit
    with equipment.open_worktree(path, commit) as worktree:
        snapshot = equipment.snapshots.take(path)
        if snapshot.tree != equipment.worktrees.borrowing.exact_tree(commit):
            raise EnvironmentFault(
                f"{path} is not what commit {commit} holds", rule="run.candidate"
            )
        if not run.progress.candidate:
            _keep_patch(run, equipment, baseline, snapshot)
            facts = {"commit": commit, "tree": made.tree, "snapshot": snapshot.id}
            run.emit(EventType.CANDIDATE_PREPARED, {**facts, "tasks": task_ids})
        with prepare_worktree(run, inspection, NAME, worktree, commit) as made_ready:
            yield Candidate(commit, made.tree, made_ready, snapshot)


def _keep_patch(run: Run, equipment: RunDependencies, baseline: str, snapshot: Snapshot) -> None:
    """Keep the patch of the whole run, from the same two trees that are judged."""
    tasks = run.progress.active
    if len(tasks) == 1:
        # One task: its patch is the run's, byte for byte.
        patch = _read_patch(run, tasks[0].task_id)
    else:
        # The first of them stands on no other work: what it is measured against is the baseline.
        grounds = (task.origin for task in tasks if not task.below)
        origin = next(grounds, "") or equipment.take_snapshot(run.id, baseline).id
        patch = equipment.snapshots.patch(origin, snapshot.id)
    names = patch_names.name_only(patch)
    for folder in ("", "git/"):
        run.bundle.write_bytes(f"{folder}patch.diff", patch, redact=False)
        run.bundle.write_bytes(f"{folder}diff_name_only.txt", names, redact=False)


def _read_patch(run: Run, task_id: str) -> bytes:
    return run.bundle.read(patch_path(task_id), limit=MAX_PATCH_BYTES)


def printable(text: str) -> str:
    """Return text for a commit message: what a terminal would obey, or not show, is a space."""
    return "".join(char if char.isprintable() or char == "\n" else " " for char in text)


MAX_DISTURBED: Final = 50
CANDIDATE: Final = "candidate"
BASELINE: Final = "baseline"


@dataclass(frozen=True, slots=True)
class PlannedTest:
    """One command, and the contracts that ask for it."""

    test: AcceptanceTest
    task_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tested:
    """The result of the tests."""

    passed: bool
    blamed: tuple[str, ...]
    """The tasks whose own tests failed; empty: those of the whole did."""
    reason: str


def list_tests(run: Run) -> tuple[PlannedTest, ...]:
    """Return the tests of the run's own contract, then those of each task, each command once.

    Each of them has its time limit.
    """
    found: dict[tuple[str, bool], PlannedTest] = {}
    for contract in (run.root_contract, *run.active_contracts):
        for test in contract.acceptance_tests:
            limit = test.timeout_sec or contract.timeout_retry.timeout_sec
            known = found.get((test.cmd, test.must_pass))
            task_ids = (*(known.task_ids if known else ()), contract.task_id)
            kept = known.test if known else test
            longest = max(limit, (known and known.test.timeout_sec) or 0)
            found[test.cmd, test.must_pass] = PlannedTest(
                replace(kept, timeout_sec=longest), tuple(dict.fromkeys(task_ids))
            )
    return tuple(found.values())


def judge_tests(
    todo: Sequence[PlannedTest],
    done: Sequence[FinishedCommand],
    trees: tuple[str, str],
    weakened: Sequence[Violation],
) -> GateResult:
    """Let the gate judge; ``trees`` are the one that was tested and that of the candidate."""
    return tests_gate.judge_tests(
        [(each.test.name, each.test.cmd, each.test.must_pass) for each in todo],
        [
            tests_gate.SuiteOutcome(
                one.test.name,
                one.argv,
                one.test.must_pass,
                one.exit_code,
                one.outcome,
                find_whether_tests_ran(one.argv, one.stdout, one.stderr),
            )
            for one in done
        ],
        tested_tree=trees[0],
        candidate_tree=trees[1],
        weakened=tuple(weakened),
    )


class TestStage(RunStage):
    """Runs the tests of a candidate."""

    __test__ = False

    def run_tests(
        self, candidate: Candidate, *, where: str = CANDIDATE, seen: Snapshot | None = None
    ) -> Tested:
        """Run all tests in the candidate's worktree, and let the gate judge.

        ``seen`` is the tree as it was found to be after an agent was in it: every file was read for
        it. What was recorded before a kill is not done again.
        """
        run, commit = self.run, candidate.commit
        known = run.progress.tested
        if known.get("where") == where and known.get("commit") == commit:
            named = known.get("blamed")
            blamed = tuple(map(str, named)) if isinstance(named, list) else ()
            return Tested(known["status"] == "PASS", blamed, str(known.get("reason", "")))
        todo, started = list_tests(run), self.equipment.now()
        home = run.places.own_home(run.id, f"tests-{where}")
        commands = Commands(candidate.worktree, home, run.test_network)
        before = seen or candidate.snapshot
        disturbed: list[Violation] = []

        def run_one(test: AcceptanceTest) -> FinishedCommand:
            finished = announce(run, commands, test, test.timeout_sec or 0)
            disturbed.extend(self._find_disturbed(candidate, before, test.name))
            return finished

        done = run_in_order((each.test for each in todo), run_one, candidate.worktree.renew)
        # A branch may have to be joined twice.
        folder = f"ci/{where}-{run.progress.attempt}"
        folder = unused_folder(run, folder if where == CANDIDATE else f"{folder}-{commit[:16]}")
        self._write_logs(done)
        report = write_report(
            run, self.equipment, done, started=started, folder=folder, planned=len(todo)
        )
        trees = (before.tree, candidate.snapshot.tree)
        gate = judge_tests(todo, done, trees, [*self._find_weakened(), *disturbed])
        passed = run.record_gate(gate)
        if not passed and report.status == "PASS":
            # Every command was green, and the gate has something against it all the same.
            said = Failure(message=gate.violations[0].message)
            report = replace(report, status="FAIL", failure=said)
        active = {task.task_id for task in run.progress.active}
        pairs = zip(todo, done, strict=False)
        asked = (name for each, one in pairs if one.red for name in each.task_ids)
        blamed = tuple(dict.fromkeys(name for name in asked if name in active))
        reason = "; ".join(each.message for each in gate.violations[:5])
        reference = run.bundle.write_json(f"{folder}/report.json", report.json())
        run.bundle.write_json("reports/test_report.json", report.json())
        facts = {
            "status": report.status,
            "blamed": list(blamed),
            "reason": reason,
            "tree": before.tree,
            "commit": commit,
            "where": where,
        }
        run.record_report(EventType.TEST_RESULT, reference, facts, good=passed)
        return Tested(passed, blamed, reason)

    def _find_disturbed(
        self, candidate: Candidate, before: Snapshot, name: str
    ) -> Iterator[Violation]:
        """Yield what a command changed in the tested tree: the next would test another tree.

        It may leave files of its own, but none that decides what tests are run.
        """
        store = self.equipment.snapshots
        after = store.take(candidate.worktree.directory)
        deciding = (is_test, is_test_configuration, is_read_unasked)
        found = [
            change
            for change in store.diff(before.id, after.id)
            if change.kind not in {ChangeKind.ADDED, ChangeKind.COPIED}
            or any(decides(change.path) for decides in deciding)
        ]
        for change in found[:MAX_DISTURBED]:
            message = f"{quote_text(change.path)} was {change.kind} by the test {quote_text(name)}"
            yield Violation("tests.tree", message, valid_text(change.path))

    def _find_weakened(self) -> Iterator[Violation]:
        for task in self.run.progress.active:
            if not self.run.contract(task.task_id).may_change_tests:
                yield from self.inspection.find_weakened(task.origin, task.snapshot)

    def _write_logs(self, done: Sequence[FinishedCommand]) -> None:
        """Write the files of ``tests/``: all output, one command after the other."""
        bundle = self.run.bundle
        bundle.write_text("tests/command.txt", "".join(f"{one.test.cmd}\n" for one in done))
        for name in ("stdout", "stderr"):
            data = b"".join(
                b"$ " + one.test.cmd.encode("utf-8", "replace") + b"\n" + getattr(one, name)
                for one in done
            )
            bundle.write_bytes(f"tests/{name}.log", data)


def try_baseline(run: Run, inspection: Inspection) -> None:
    """Run set-up and acceptance tests on the baseline, and record what they say, once a run.

    ``PlanRefused`` ends the run: the environment keeps a command from doing its job, or the tests
    say something else than the contract expects. Neither is an agent's to repair.
    """
    if run.progress.baseline or run.option("no_baseline") is True:
        return
    equipment, commit = inspection.equipment, inspection.baseline
    started, todo = equipment.now(), list_tests(run)
    done: list[FinishedCommand] = []
    fault = ""
    with (
        equipment.open_worktree(run.places.own_worktree(run.id, "tried"), commit) as worktree,
        prepare_worktree(run, inspection, BASELINE, worktree, commit) as made,
    ):
        home = run.places.own_home(run.id, f"tests-{BASELINE}")
        commands = Commands(made, home, run.test_network, where=BASELINE)
        # A red test says nothing about the next, but a fault does.
        while len(done) < len(todo) and not fault:
            test = todo[len(done)].test
            done.append(announce(run, commands, test, test.timeout_sec or 0))
            fault = describe_fault(done[-1])
    folder = unused_folder(run, f"ci/{BASELINE}")
    report = write_report(run, equipment, done, started=started, folder=folder, planned=len(todo))
    reference = run.bundle.write_json(f"{folder}/report.json", report.json())
    facts = {"status": report.status, "commit": commit, "where": BASELINE, "fault": fault}
    run.record_report(EventType.BASELINE_RESULT, reference, facts, good=not fault)
    if fault:
        raise PlanRefused(
            f"{done[-1].test.name} cannot run on the baseline: {fault}",
            rule="baseline.fault",
            hint="install what is missing, name a 'setup' in the contract, or correct the command",
        )
    _refuse_unexpected(run, done)


def _refuse_unexpected(run: Run, done: Sequence[FinishedCommand]) -> None:
    expected = run.root_contract.expected_baseline
    red = [one.test.name for one in done if one.red]
    if expected == "red" and not red:
        idle = [
            one.test.name
            for one in done
            if find_whether_tests_ran(one.argv, one.stdout, one.stderr) is False
        ]
        found = f"{idle[0]} runs no test" if idle else "all of them are green"
        hint = "commit the test that shows the fault"
        raise PlanRefused(
            f"the contract expects red tests at the baseline, and {found}",
            rule="baseline.green",
            hint=f"correct the command, or {hint}"
            if idle
            else f"{hint}, or remove 'expected_baseline'",
        )
    if expected == "green" and red:
        raise PlanRefused(
            f"the contract expects green tests at the baseline, and {', '.join(red)} is red",
            rule="baseline.red",
            hint="repair the baseline first, or set 'expected_baseline' to \"red\"",
        )
