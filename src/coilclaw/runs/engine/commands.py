"""Running the commands of a contract: argv only, confined, in time, with all they wrote kept."""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import ProcessFault, Stopped
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.contracts.records import Failure, TestCommand, TestCounts, TestReport, TestRunner
from coilclaw.runs.evidence.layout import make_segment
from coilclaw.runs.gates.command_line import parse_command
from coilclaw.workspace import command, remove_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from coilclaw.runners import Network
    from coilclaw.runs.contracts.task_contract import AcceptanceTest
    from coilclaw.runs.engine.ready_worktree import ReadyWorktree
    from coilclaw.runs.engine.run import Run, RunDependencies


_NOT_RUN: Final = {126: "cannot be executed", 127: "was not found"}
_TAIL_BYTES: Final = 64 * 2**10
_MODULE: Final = re.compile(r"No module named '?([A-Za-z_][A-Za-z0-9_.]*)'?")
_MADE: Final = re.compile(r"\bError (126|127)\s*$", re.MULTILINE)
"""What make says of a program that its recipe could not start."""


def describe_fault(done: FinishedCommand) -> str:
    """Say why the environment kept a command from doing its job; empty if it did its job."""
    if done.outcome == "not_started":
        said = done.stderr.decode("utf-8", "replace").strip().removesuffix(".")
        return said or f"{done.argv[0]} could not be started"
    if done.outcome != "exited" or done.exit_code == 0:
        return ""
    if why := _NOT_RUN.get(done.exit_code):
        return f"{done.argv[0]} started a program that {why} (exit code {done.exit_code})"
    said = (done.stdout[-_TAIL_BYTES:] + done.stderr[-_TAIL_BYTES:]).decode("utf-8", "replace")
    # Modules that the command names to be run: ``python -m pytest``.
    pairs = itertools.pairwise(done.argv)
    modules = {word.partition(".")[0] for option, word in pairs if option == "-m"}
    for found in _MODULE.finditer(said):
        if found.group(1).partition(".")[0] in modules:
            return f"{done.argv[0]} has no module named {found.group(1)}"
    if (made := _MADE.search(said)) is not None:
        return f"{done.argv[0]} started a program that failed with exit code {made.group(1)}"
    return ""


LIMIT_BYTES: Final = 8 * 2**20
"""Of each stream of a command that are kept."""
TIMED_OUT: Final = 124
NOT_STARTED: Final = 127
STOPPED: Final = 130


@dataclass(frozen=True, slots=True)
class FinishedCommand:
    """A command that came to its end, or could not be started."""

    test: AcceptanceTest
    argv: tuple[str, ...]
    timeout_sec: int
    exit_code: int
    outcome: str
    """``exited``, ``timed_out``, ``signalled``, ``cancelled`` or ``not_started``."""
    duration_sec: float
    stdout: bytes
    stderr: bytes

    @property
    def green(self) -> bool:
        return self.outcome == "exited" and self.exit_code == 0

    @property
    def red(self) -> bool:
        """Whether it keeps the work from going on."""
        return not self.green and (self.test.must_pass or self.outcome != "exited")


@dataclass(frozen=True, slots=True)
class Commands:
    """Runs commands in one worktree."""

    worktree: ReadyWorktree
    home: Path
    network: Network
    where: str = ""
    """What they are run for, where it is not the acceptance of the work."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """Variables beside those that every command has."""
    fresh: bool = True
    """Whether each of them gets a home in which nothing is left of the one before."""

    def run(self, test: AcceptanceTest, timeout_sec: int) -> FinishedCommand:
        """Run one command to its end."""
        argv = parse_command(test.cmd).argv
        equipment = self.worktree.equipment
        # Compiled code that stands in the tree may not be that of its source.
        cache = str(self.home / "pycache")
        python = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": cache}
        if self.fresh:
            # Nothing that an earlier command left at home has a say in this one.
            remove_tree(self.home)
        self.worktree.make_home(self.home)
        try:
            with self.worktree.in_use():
                result = command.run(
                    argv,
                    cwd=self.worktree.directory,
                    timeout_s=timeout_sec,
                    env={
                        **self.worktree.environ(self.home),
                        "CI": "true",
                        **python,
                        **self.environ,
                    },
                    limit_bytes=LIMIT_BYTES,
                    sandbox=self.worktree.sandbox(
                        self.home, filesystem="workspace-write", network=self.network
                    ),
                    support=equipment.support,
                    cancel=equipment.cancel,
                )
        except ProcessFault as problem:
            said = problem.message.encode("utf-8", "replace")
            return FinishedCommand(
                test, argv, timeout_sec, NOT_STARTED, "not_started", 0.0, b"", said + b"\n"
            )
        code = result.exit_code
        if result.outcome == "timed_out":
            code = TIMED_OUT
        elif code is None:
            code = STOPPED if result.signal is None else 128 + result.signal
        errors = result.stderr.data
        if code != 0 and result.outcome == "exited":
            errors += self.worktree.warning.encode()
        ended = (result.outcome, result.duration_s, result.stdout.data, errors)
        return FinishedCommand(test, argv, timeout_sec, code, *ended)


def announce(
    run: Run, commands: Commands, test: AcceptanceTest, timeout_sec: int
) -> FinishedCommand:
    """Run one command, with an event before and one after it; ``Stopped`` if it was cancelled."""
    about = {"where": commands.where} if commands.where else {}
    words = list(parse_command(test.cmd).argv)
    run.emit(EventType.COMMAND_STARTED, {"name": test.name, "argv": words, **about})
    done = commands.run(test, timeout_sec)
    run.emit(
        EventType.COMMAND_FINISHED,
        {"name": test.name, "exit_code": done.exit_code, "outcome": done.outcome, **about},
        level="INFO" if done.green else "WARN",
    )
    if done.outcome == "cancelled":
        # It says nothing about the work: whoever resumes the run does it again.
        raise Stopped(f"the run was stopped: {commands.worktree.equipment.cancel.reason}")
    return done


def run_in_order(
    tests: Iterable[AcceptanceTest],
    run: Callable[[AcceptanceTest], FinishedCommand],
    between: Callable[[], None] = lambda: None,
) -> tuple[FinishedCommand, ...]:
    """Run tests one after the other; after one that keeps the work from going on, none."""
    done: list[FinishedCommand] = []
    for test in tests:
        if done:
            between()
        done.append(run(test))
        if done[-1].red:
            break
    return tuple(done)


AGENT: Final = "orchestrator"


def unused_folder(run: Run, folder: str) -> str:
    """Return a folder of the bundle that holds nothing yet.

    What a run that was killed had written there stays: it may be named by an event.
    """
    names = (f"{folder}-again-{number}" if number else folder for number in itertools.count())
    return next(name for name in names if not os.path.lexists(run.bundle.directory / name))


def write_report(
    run: Run,
    equipment: RunDependencies,
    done: Sequence[FinishedCommand],
    *,
    started: str,
    folder: str,
    planned: int,
) -> TestReport:
    """Keep the output of commands below ``folder`` in the bundle, and return their report.

    Of ``planned`` commands, those that did not run count as skipped. Before there is a contract,
    the report is that of the run.
    """
    rows = []
    for number, one in enumerate(done, 1):
        path = f"{folder}/{make_segment(f'{number:03}-{one.test.name}')}"
        rows.append(
            TestCommand(
                name=one.test.name,
                cmd_argv=one.argv,
                must_pass=one.test.must_pass,
                timeout_sec=one.timeout_sec,
                exit_code=one.exit_code,
                duration_sec=round(one.duration_sec, 3),
                stdout=run.bundle.write_bytes(f"{path}.stdout.log", one.stdout),
                stderr=run.bundle.write_bytes(f"{path}.stderr.log", one.stderr),
                cwd=".",
            )
        )
    red = [one for one in done if one.red]
    broken = any(one.outcome != "exited" for one in done)
    status = "ERROR" if broken else "FAIL" if red else "PASS"
    return TestReport(
        run_id=run.id,
        task_id=run.id if run.progress.root is None else run.root_contract.task_id,
        runner=TestRunner(role="ORCHESTRATOR", agent_id=AGENT),
        started_at=started,
        finished_at=equipment.now(),
        status=status,  # type: ignore[arg-type]  # one of its values
        commands=tuple(rows),
        artifacts=tuple(ref for row in rows for ref in (row.stdout, row.stderr)),
        attempt=run.progress.attempt,
        summary=TestCounts(
            passed=sum(one.green for one in done),
            failed=sum(not one.green for one in done),
            skipped=planned - len(done),
        ),
        failure=Failure(message=describe_failure(red[0])) if red else None,
    )


def describe_failure(one: FinishedCommand) -> str:
    """Say in one sentence how a command failed."""
    if one.outcome == "timed_out":
        return f"{one.test.name} took longer than {one.timeout_sec} s"
    if one.outcome != "exited":
        return f"{one.test.name} {one.outcome.replace('_', ' ')}"
    return f"{one.test.name} ended with exit code {one.exit_code}"
