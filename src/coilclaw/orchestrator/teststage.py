"""S4: exactly the acceptance tests, run by the orchestrator, on the tree that is to be merged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from coilclaw.contracts.eventtypes import EventType
from coilclaw.contracts.results import Failure
from coilclaw.domain.treediff import ChangeKind
from coilclaw.domain.treepath import shown
from coilclaw.errors import Stopped
from coilclaw.gates import tests as tests_gate
from coilclaw.gates.ambient_files import is_read_unasked
from coilclaw.gates.result import Violation
from coilclaw.gates.scope import legible
from coilclaw.gates.testfiles import is_test, is_test_configuration
from coilclaw.gates.testoutput import ran
from coilclaw.orchestrator.command_report import unused_folder, write_report
from coilclaw.orchestrator.commands import Commands, announce, in_order
from coilclaw.runtime.identity import stamp

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from coilclaw.contracts.reports import TestReport
    from coilclaw.contracts.taskcontract import AcceptanceTest
    from coilclaw.domain.treediff import TreeChange
    from coilclaw.orchestrator.candidates import Candidate
    from coilclaw.orchestrator.commands import Finished
    from coilclaw.orchestrator.equipment import Equipment
    from coilclaw.orchestrator.inspection import Inspection
    from coilclaw.orchestrator.run import Run
    from coilclaw.workspace.snapshot import Snapshot

MAX_DISTURBED: Final = 50
CANDIDATE: Final = "candidate"


@dataclass(frozen=True, slots=True)
class Planned:
    """One command, and the contracts that ask for it."""

    test: AcceptanceTest
    timeout_sec: int
    task_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tested:
    """What the tests said."""

    passed: bool
    blamed: tuple[str, ...]
    """The tasks whose own tests failed; empty: those of the whole did."""
    reason: str


def planned(run: Run) -> tuple[Planned, ...]:
    """The tests of the run's own contract, then those of each task, each command once."""
    contracts = [run.root_contract, *(run.contract(task.task_id) for task in run.progress.active)]
    found: dict[tuple[str, bool], Planned] = {}
    for contract in contracts:
        for test in contract.acceptance_tests:
            key = (test.cmd, test.must_pass)
            timeout = test.timeout_sec or contract.timeout_retry.timeout_sec
            known = found.get(key)
            asked = (*(known.task_ids if known else ()), contract.task_id)
            found[key] = Planned(
                known.test if known else test,
                max(timeout, known.timeout_sec) if known else timeout,
                tuple(dict.fromkeys(asked)),
            )
    return tuple(found.values())


class TestStage:
    """Runs the tests of a candidate."""

    __test__ = False

    def __init__(self, run: Run, equipment: Equipment, inspection: Inspection) -> None:
        self._run = run
        self._equipment = equipment
        self._inspection = inspection

    def test(
        self, candidate: Candidate, *, where: str = CANDIDATE, seen: Snapshot | None = None
    ) -> Tested:
        """Run all tests in the candidate's worktree, and let the gate judge.

        ``seen`` is the tree as it was found to be after somebody was in it: every file was read for
        it. What was recorded before a kill is not done again.
        """
        known = self._run.progress.tested
        if known.get("where") == where and known.get("commit") == candidate.commit:
            return _recorded(known)
        todo = planned(self._run)
        contract = self._run.root_contract
        commands = Commands(
            candidate.worktree,
            self._run.places.own_home(self._run.id, f"tests-{where}"),
            "allow" if contract.tool_permissions.network == "allow" else "deny",
        )
        started = stamp(self._equipment.clock())
        before = seen or candidate.snapshot
        limits = {id(each.test): each.timeout_sec for each in todo}
        disturbed: list[Violation] = []

        def one_after_the_other(test: AcceptanceTest) -> Finished:
            finished = self._run_one(commands, test, limits)
            disturbed.extend(self._disturbed(candidate, before, test.name))
            return finished

        tests = (each.test for each in todo)
        done = in_order(tests, one_after_the_other, candidate.worktree.renew)
        folder = folder_of(where, self._run.progress.attempt, candidate.commit)
        folder = unused_folder(self._run, f"ci/{folder}")
        self._logs(done)
        report = write_report(
            self._run,
            self._equipment,
            done,
            started=started,
            folder=folder,
            skipped=len(todo) - len(done),
        )
        gate = tests_gate.judge(
            [(each.test.name, each.test.cmd, each.test.must_pass) for each in todo],
            [outcome_of(one) for one in done],
            tested_tree=before.tree,
            candidate_tree=candidate.snapshot.tree,
            weakened=(*self._weakened(), *disturbed),
        )
        passed = self._run.judged(gate)
        if not passed and report.status == "PASS":
            # Every command was green, and the gate has something against it all the same.
            said = Failure(message=gate.violations[0].message)
            report = replace(report, status="FAIL", failure=said)
        tested = Tested(passed, self._blamed(todo, done), _reason(gate.violations))
        about = {"tree": before.tree, "commit": candidate.commit, "where": where}
        self._keep(report, f"{folder}/report.json", tested, about)
        return tested

    def _keep(
        self, report: TestReport, path: str, tested: Tested, about: Mapping[str, str]
    ) -> None:
        """Write what the tests said, and then that they said it."""
        value = report.json()
        reference = self._run.bundle.write_json(path, value)
        self._run.bundle.write_json("reports/test_report.json", value)
        self._run.emit(
            EventType.TEST_RESULT,
            {
                "status": report.status,
                "path": reference.path,
                "sha256": reference.sha256,
                "blamed": list(tested.blamed),
                "reason": tested.reason,
                **about,
            },
            level="INFO" if tested.passed else "ERROR",
        )

    def _run_one(
        self, commands: Commands, test: AcceptanceTest, limits: dict[int, int]
    ) -> Finished:
        done = announce(self._run, commands, test, limits[id(test)])
        if done.outcome == "cancelled":
            # It says nothing about the work: who resumes the run tests it again.
            raise Stopped(f"the run was stopped: {self._equipment.cancel.reason}")
        return done

    def _disturbed(self, candidate: Candidate, before: Snapshot, name: str) -> Iterator[Violation]:
        """What a command did to the tree that is being tested: the next would test another one.

        It may leave files of its own, but none that decides what tests are run.
        """
        store = self._equipment.snapshots
        after = store.take(candidate.worktree.directory)
        found = [change for change in store.diff(before.id, after.id) if _disturbs(change)]
        for change in found[:MAX_DISTURBED]:
            message = f"{shown(change.path)} was {change.kind} by the test {shown(name)}"
            yield Violation("tests.tree", message, legible(change.path))

    def _weakened(self) -> tuple[Violation, ...]:
        found: list[Violation] = []
        for task in self._run.progress.active:
            if not self._run.contract(task.task_id).may_change_tests:
                found += self._inspection.weakened(task.origin, task.snapshot)
        return tuple(found)

    def _blamed(self, todo: tuple[Planned, ...], done: tuple[Finished, ...]) -> tuple[str, ...]:
        active = {task.task_id for task in self._run.progress.active}
        red = {id(one.test) for one in done if one.red}
        named = [
            name
            for each in todo
            if id(each.test) in red
            for name in each.task_ids
            if name in active
        ]
        return tuple(dict.fromkeys(named))

    def _logs(self, done: tuple[Finished, ...]) -> None:
        """The files that the specification names: everything, one command after the other."""
        commands = "".join(f"{one.test.cmd}\n" for one in done)
        self._run.bundle.write_text("tests/command.txt", commands)
        for name in ("stdout", "stderr"):
            data = b"".join(
                b"$ " + one.test.cmd.encode("utf-8", "replace") + b"\n" + getattr(one, name)
                for one in done
            )
            self._run.bundle.write_bytes(f"tests/{name}.log", data)


def outcome_of(one: Finished) -> tests_gate.Outcome:
    """What the gate is told about a command."""
    return tests_gate.Outcome(
        one.test.name,
        one.argv,
        one.test.must_pass,
        one.exit_code,
        one.outcome,
        ran(one.argv, one.stdout, one.stderr),
    )


def folder_of(where: str, attempt: int, commit: str) -> str:
    """Where the evidence of a test stands below ``ci``; a branch may have to be joined twice."""
    return f"{where}-{attempt}" if where == CANDIDATE else f"{where}-{attempt}-{commit[:16]}"


def _recorded(known: Mapping[str, object]) -> Tested:
    named = known.get("blamed")
    blamed = tuple(map(str, named)) if isinstance(named, list) else ()
    return Tested(known["status"] == "PASS", blamed, str(known.get("reason", "")))


def _disturbs(change: TreeChange) -> bool:
    new = change.kind in {ChangeKind.ADDED, ChangeKind.COPIED}
    decides = is_test_configuration(change.path) or is_read_unasked(change.path)
    return not new or decides or is_test(change.path)


def _reason(violations: tuple[Violation, ...]) -> str:
    return "; ".join(each.message for each in violations[:5])
