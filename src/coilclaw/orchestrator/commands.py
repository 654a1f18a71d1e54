"""Running the commands of a contract: argv only, confined, in time, with all they wrote kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.contracts.eventtypes import EventType
from coilclaw.errors import ProcessFault
from coilclaw.gates.commandline import parse
from coilclaw.workspace import process
from coilclaw.workspace.removal import remove_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from coilclaw.agents.runner import Network
    from coilclaw.contracts.taskcontract import AcceptanceTest
    from coilclaw.orchestrator.ready_worktree import ReadyWorktree
    from coilclaw.orchestrator.run import Run
    from coilclaw.workspace.sandbox import Sandbox

LIMIT_BYTES: Final = 8 * 2**20
"""Of each stream of a command that are kept."""
TIMED_OUT: Final = 124
NOT_STARTED: Final = 127
STOPPED: Final = 130


@dataclass(frozen=True, slots=True)
class Finished:
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

    def run(self, test: AcceptanceTest, timeout_sec: int) -> Finished:
        """Run one command to its end."""
        argv = parse(test.cmd).argv
        equipment = self.worktree.equipment
        if self.fresh:
            # Nothing that an earlier command left at home has a say in this one.
            remove_tree(self.home)
        self.worktree.make_home(self.home)
        try:
            with self.worktree.in_use():
                result = process.run(
                    argv,
                    cwd=self.worktree.directory,
                    timeout_s=timeout_sec,
                    env=self._environ(),
                    limit_bytes=LIMIT_BYTES,
                    sandbox=self.sandbox(),
                    support=equipment.support,
                    cancel=equipment.cancel,
                )
        except ProcessFault as problem:
            said = problem.message.encode("utf-8", "replace")
            return Finished(
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
        return Finished(
            test,
            argv,
            timeout_sec,
            code,
            result.outcome,
            result.duration_s,
            result.stdout.data,
            errors,
        )

    def sandbox(self) -> Sandbox:
        return self.worktree.sandbox(self.home, filesystem="workspace-write", network=self.network)

    def _environ(self) -> dict[str, str]:
        made = self.worktree.environ(self.home)
        cache = str(self.home / "pycache")
        # Compiled code that stands in the tree may not be that of its source.
        python = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": cache}
        return {**made, "CI": "true", **python, **self.environ}


def announce(run: Run, commands: Commands, test: AcceptanceTest, timeout_sec: int) -> Finished:
    """Run one command, with an event before and one after it."""
    about = {"where": commands.where} if commands.where else {}
    words = list(parse(test.cmd).argv)
    run.emit(EventType.COMMAND_STARTED, {"name": test.name, "argv": words, **about})
    done = commands.run(test, timeout_sec)
    run.emit(
        EventType.COMMAND_FINISHED,
        {"name": test.name, "exit_code": done.exit_code, "outcome": done.outcome, **about},
        level="INFO" if done.green else "WARN",
    )
    return done


def in_order(
    tests: Iterable[AcceptanceTest],
    run: Callable[[AcceptanceTest], Finished],
    between: Callable[[], None] = lambda: None,
) -> tuple[Finished, ...]:
    """Run tests one after the other; after one that keeps the work from going on, none."""
    done: list[Finished] = []
    for test in tests:
        if done:
            between()
        done.append(run(test))
        if done[-1].red:
            break
    return tuple(done)
