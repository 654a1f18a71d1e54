"""``BaselineTrial``: the tool with which a planner runs a test command on the baseline.

The command gate judges first, as it will judge the contract. What it accepts runs confined, without
the network, in a worktree of the baseline that nobody else uses and that is removed afterwards. The
set-up that the contract will have was made for it before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from coilclaw.contracts.eventtypes import EventType
from coilclaw.contracts.taskcontract import AcceptanceTest
from coilclaw.domain.effects import External
from coilclaw.domain.verdict import Risk
from coilclaw.errors import DeniedError
from coilclaw.gates.commandline import parse
from coilclaw.orchestrator.commands import Commands
from coilclaw.orchestrator.ready_worktree import ready
from coilclaw.tools import output
from coilclaw.tools.basis import Basis, Ready, closed, failure, success, text, whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from coilclaw.domain.effects import Effect
    from coilclaw.domain.messages import Json
    from coilclaw.domain.toolcalls import ToolResult
    from coilclaw.orchestrator.commands import Finished
    from coilclaw.orchestrator.inspection import Inspection
    from coilclaw.orchestrator.run import Run
    from coilclaw.orchestrator.worktree_setup import SetupTerms
    from coilclaw.tools.contract import Arguments, Prepared, ToolContext
    from coilclaw.workspace.cancel import Cancellation

MAX_TRIALS: Final = 6
"""Of one run, also after it was resumed."""
TIMEOUT_SEC: Final = 300
MAX_COMMAND: Final = 4096
MAX_TOLD_BYTES: Final = 8_000
"""Of each stream, what the model is told; the evidence has all of it."""
FOLDER: Final = "artifacts/trials"
WHERE: Final = "plan"
"""Tells these commands from the tests of a contract."""
WHO: Final = "sandbox:baseline"


class BaselineTrial(Basis):
    """Runs a proposed test command on the baseline."""

    name: Final = "try_test"
    description: Final = (
        "Run one test command (program and arguments, no shell syntax) on a copy of the baseline, "
        "without the network, and answer with its exit code and the end of its output. A command "
        "that the command gate refuses is not run."
    )
    parameters_schema: Final[dict[str, Json]] = closed(
        {
            "cmd": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_COMMAND,
                "description": "the command as an acceptance test would name it",
            },
            "timeout_sec": {
                "type": "integer",
                "minimum": 1,
                "maximum": TIMEOUT_SEC,
                "description": f"how long it may take (default {TIMEOUT_SEC})",
            },
        },
        "cmd",
    )

    def __init__(
        self,
        run: Run,
        inspection: Inspection,
        setup: SetupTerms,
        refusals: Callable[[AcceptanceTest], tuple[str, ...]],
    ) -> None:
        self._run = run
        self._inspection = inspection
        self._setup = setup
        self._refusals = refusals

    def effects(self, args: Arguments) -> tuple[Effect, ...]:
        text(args, "cmd")
        return (External(WHO, Risk.LOW),)

    def prepare(self, args: Arguments, context: ToolContext) -> Prepared:
        limit = min(max(whole(args, "timeout_sec", TIMEOUT_SEC), 1), TIMEOUT_SEC)
        test = AcceptanceTest(
            name="trial", cmd=text(args, "cmd"), must_pass=True, timeout_sec=limit
        )
        refused = self._refusals(test)
        if refused:
            raise DeniedError("; ".join(refused), rule="command.refused")
        return Ready((f"run {test.cmd}",), lambda: self._try(test, limit, context.cancel))

    def _try(self, test: AcceptanceTest, limit: int, cancel: Cancellation) -> ToolResult:
        place = self._run.bundle.directory / FOLDER
        number = 1 + (sum(1 for _ in place.iterdir()) if place.is_dir() else 0)
        if number > MAX_TRIALS:
            return failure(f"{MAX_TRIALS} commands were tried already", rule="budget.trials")
        self._run.emit(
            EventType.COMMAND_STARTED,
            {"name": f"trial-{number}", "argv": list(parse(test.cmd).argv), "where": WHERE},
        )
        inspection = self._inspection
        inspection = replace(inspection, equipment=replace(inspection.equipment, cancel=cancel))
        done = run_on_baseline(self._run, inspection, self._setup, test, limit)
        self._keep(number, done)
        return success(_describe(done), {"exit_code": done.exit_code, "outcome": done.outcome})

    def _keep(self, number: int, done: Finished) -> None:
        bundle, folder = self._run.bundle, f"{FOLDER}/{number}"
        for name in ("stdout", "stderr"):
            bundle.write_bytes(f"{folder}/{name}.log", getattr(done, name))
        facts: dict[str, Json] = {
            "baseline_commit": self._inspection.baseline,
            "cmd_argv": list(done.argv),
            "timeout_sec": done.timeout_sec,
            "exit_code": done.exit_code,
            "outcome": done.outcome,
            "duration_sec": round(done.duration_sec, 3),
        }
        bundle.write_json(f"{folder}/command.json", facts)
        self._run.emit(
            EventType.COMMAND_FINISHED,
            {
                "name": f"trial-{number}",
                "exit_code": done.exit_code,
                "outcome": done.outcome,
                "where": WHERE,
            },
            level="INFO" if done.green else "WARN",
        )


def run_on_baseline(
    run: Run, inspection: Inspection, setup: SetupTerms, test: AcceptanceTest, timeout_sec: int
) -> Finished:
    """Run one command in a worktree of the baseline, confined and without the network."""
    commit, worktrees = inspection.baseline, inspection.equipment.worktrees
    worktree = worktrees.add(run.places.own_worktree(run.id, "trial"), commit)
    try:
        home = run.places.own_home(run.id, "trial")
        with ready(run, inspection, "trial", worktree, commit, terms=setup) as made:
            return Commands(made, home, "deny").run(test, timeout_sec)
    finally:
        worktrees.remove(worktree)


def _describe(done: Finished) -> str:
    lines = [f"exit code {done.exit_code} ({done.outcome}) after {done.duration_sec:.1f} s"]
    for name in ("stdout", "stderr"):
        said = getattr(done, name).decode("utf-8", "replace")
        if said:
            lines.append(f"{name}:\n{output.middle_cut(said, MAX_TOLD_BYTES)}")
    return "\n".join(lines)
