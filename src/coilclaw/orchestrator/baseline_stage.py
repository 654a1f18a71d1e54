"""The baseline is tried before an agent starts: what its tests say, and whether they can run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.contracts.eventtypes import EventType
from coilclaw.errors import PlanRefused, Stopped
from coilclaw.gates.testoutput import ran
from coilclaw.orchestrator.command_fault import describe_fault
from coilclaw.orchestrator.command_report import unused_folder, write_report
from coilclaw.orchestrator.commands import Commands, announce
from coilclaw.orchestrator.ready_worktree import ready
from coilclaw.orchestrator.teststage import planned
from coilclaw.runtime.identity import stamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coilclaw.orchestrator.commands import Finished
    from coilclaw.orchestrator.inspection import Inspection
    from coilclaw.orchestrator.run import Run

NAME: Final = "baseline"


def try_baseline(run: Run, inspection: Inspection) -> None:
    """Run set-up and acceptance tests on the baseline, and record what they say, once a run.

    ``PlanRefused`` ends the run: the environment keeps a command from doing its job, or the tests
    say something else than the contract expects. Neither is an agent's to repair.
    """
    if run.progress.baseline or run.option("no_baseline") is True:
        return
    equipment = inspection.equipment
    started = stamp(equipment.clock())
    worktree = equipment.worktrees.add(
        run.places.own_worktree(run.id, "tried"), inspection.baseline
    )
    try:
        with ready(run, inspection, NAME, worktree, inspection.baseline) as made:
            permissions = run.root_contract.tool_permissions
            commands = Commands(
                made,
                run.places.own_home(run.id, f"tests-{NAME}"),
                "allow" if permissions.network == "allow" else "deny",
                where=NAME,
            )
            done = _run_all(run, inspection, commands)
    finally:
        equipment.worktrees.remove(worktree)
    fault = next(((one, said) for one in done if (said := describe_fault(one))), None)
    _record(run, inspection, done, started, "" if fault is None else fault[1])
    if fault is not None:
        raise PlanRefused(
            f"{fault[0].test.name} cannot run on the baseline: {fault[1]}",
            rule="baseline.fault",
            hint="install what is missing, name a 'setup' in the contract, or correct the command",
        )
    _refuse_unexpected(run, done)


def _run_all(run: Run, inspection: Inspection, commands: Commands) -> list[Finished]:
    """Run every acceptance test: a red one says nothing about the next, but a fault does."""
    done: list[Finished] = []
    for each in planned(run):
        one = announce(run, commands, each.test, each.timeout_sec)
        if one.outcome == "cancelled":
            raise Stopped(f"the run was stopped: {inspection.equipment.cancel.reason}")
        done.append(one)
        if describe_fault(one):
            break
    return done


def _record(
    run: Run, inspection: Inspection, done: Sequence[Finished], started: str, fault: str
) -> None:
    folder = unused_folder(run, f"ci/{NAME}")
    report = write_report(
        run,
        inspection.equipment,
        done,
        started=started,
        folder=folder,
        skipped=len(planned(run)) - len(done),
    )
    reference = run.bundle.write_json(f"{folder}/report.json", report.json())
    run.emit(
        EventType.BASELINE_RESULT,
        {
            "status": report.status,
            "path": reference.path,
            "sha256": reference.sha256,
            "commit": inspection.baseline,
            "where": NAME,
            "fault": fault,
        },
        level="ERROR" if fault else "INFO",
    )


def _refuse_unexpected(run: Run, done: Sequence[Finished]) -> None:
    expected = run.root_contract.expected_baseline
    red = [one.test.name for one in done if one.red]
    if expected == "red" and not red:
        idle = [one.test.name for one in done if ran(one.argv, one.stdout, one.stderr) is False]
        if idle:
            raise PlanRefused(
                f"the contract expects red tests at the baseline, and {idle[0]} runs no test",
                rule="baseline.green",
                hint="correct the command, or commit the test that shows the fault",
            )
        raise PlanRefused(
            "the contract expects red tests at the baseline, and all of them are green",
            rule="baseline.green",
            hint="commit the test that shows the fault, or remove 'expected_baseline'",
        )
    if expected == "green" and red:
        raise PlanRefused(
            f"the contract expects green tests at the baseline, and {', '.join(red)} is red",
            rule="baseline.red",
            hint="repair the baseline first, or set 'expected_baseline' to \"red\"",
        )
