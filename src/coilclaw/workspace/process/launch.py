"""Start a child, confined as chosen, and attend it to its end."""

from __future__ import annotations

import math
import os
import subprocess
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from coilclaw.kernel import ProcessFault, UsageError
from coilclaw.workspace.process import bubblewrap, environment, landlock
from coilclaw.workspace.process.capture import Capture, Captured
from coilclaw.workspace.process.confinement import SandboxSupport
from coilclaw.workspace.process.process_table import Family
from coilclaw.workspace.process.sandbox import Choice, choose_sandbox, probe_sandboxes
from coilclaw.workspace.process.supervision import ProcessBounds, ProcessEnding, Supervision, Watch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from _typeshed import SupportsRead

    from coilclaw.workspace.process.cancellation import Cancellation, Waker
    from coilclaw.workspace.process.confinement import Enforced, Sandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessResult(ProcessEnding):
    """The end of a process that was started, or of one cancelled before it could be."""

    argv: tuple[str | bytes, ...]
    stdout: Captured
    stderr: Captured
    duration_s: float
    enforced: Enforced

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with exit code 0, and is really gone."""
        return self.outcome == "exited" and self.exit_code == 0 and not self.unkillable


@dataclass(frozen=True, slots=True)
class Command:
    """What to start, as the child sees it: checked, the program found, the sandbox chosen."""

    argv: tuple[str | bytes, ...]
    program: str
    cwd: str
    env: Mapping[str, str]
    tag: str
    timeout_s: float
    choice: Choice
    began: float

    def describe_end(
        self, ending: ProcessEnding, stdout: Capture, stderr: Capture
    ) -> ProcessResult:
        """Return the result of this command, which came to an ending now."""
        return ProcessResult(
            **asdict(ending),
            argv=self.argv,
            stdout=stdout.read_captured(),
            stderr=stderr.read_captured(),
            duration_s=time.monotonic() - self.began,
            enforced=self.choice.enforced,
        )

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Raise ``ProcessFault`` with the name of the program if it cannot be started."""
        try:
            yield
        except OSError as error:
            raise ProcessFault(
                f"The program {self.program!r} could not be started: {error.strerror or error}.",
                rule="process.start",
            ) from error


@dataclass(frozen=True, slots=True)
class Started:
    """A running child and its family; ``status_fd`` is where bubblewrap reports."""

    command: Command
    popen: subprocess.Popen[bytes]
    family: Family
    status_fd: int | None


def prepare(
    argv: Sequence[str | bytes],
    cwd: str | Path,
    timeout_s: float,
    env: Mapping[str, str] | None,
    sandbox: Sandbox,
    support: SandboxSupport | None,
) -> Command:
    """Choose the sandbox and find the program; refuse what cannot be started."""
    began = time.monotonic()
    if support is None:
        support = SandboxSupport() if sandbox.kind == "none" else probe_sandboxes()
    path = environment.search_path() if env is None else env.get("PATH", "")
    choice = choose_sandbox(sandbox, support, path=path, cwd=str(cwd) if os.path.isabs(cwd) else "")
    if env is None:
        private_tmp = choice.enforced.kind == "bubblewrap" and sandbox.private_tmp
        env = environment.minimal(private_tmp=private_tmp)
    wrong = ""
    if isinstance(argv, str | bytes):
        wrong = "A process is started from a list of arguments, not from one string."
    elif not argv or not argv[0]:
        wrong = "The program to start is not named."
    else:
        passed = [environment.can_be_passed(argument) for argument in argv]
        if not all(passed):
            index = passed.index(False)
            wrong = f"Argument {index} holds a NUL or a character that has no bytes."
    if wrong:
        raise UsageError(wrong, rule="process.argv")
    if not (math.isfinite(timeout_s) and timeout_s > 0):
        what = f"The time limit of a process is {timeout_s} seconds; it has to be positive."
        raise UsageError(what, rule="process.timeout")
    if not os.path.isdir(cwd):
        raise UsageError(f"{str(cwd)!r} is not a directory to run in.", rule="process.cwd")
    directory = choice.confinement.inside(os.path.realpath(cwd))
    tag = environment.new_tag()
    return Command(
        argv=tuple(argv),
        program=environment.find_program(argv[0], env, directory, choice.confinement.outside),
        cwd=directory,
        env=environment.add_tag(env, tag),
        tag=tag,
        timeout_s=timeout_s,
        choice=choice,
        began=began,
    )


def start(command: Command, stdin: int, stdout: int, stderr: int) -> Started:
    """Start the child with these as its 0, 1 and 2; they stay the caller's.

    ``stdout`` and ``stderr`` are pipes that no other process has: a holder belongs to the child.
    """
    choice, stdio = command.choice, (stdin, stdout, stderr)
    status_fd = None

    def start_free() -> subprocess.Popen[bytes]:
        return _popen(command.argv, command.program, command.cwd, command.env, stdio)

    with command.starting():
        if choice.enforced.kind == "bubblewrap":
            popen, status_fd = _start_wrapped(command, stdio)
        elif choice.enforced.kind == "landlock":
            rules = landlock.ruleset(choice.confinement, choice.support.landlock_abi)
            popen = landlock.start_restricted(
                rules,
                start_free,
                filtered=choice.support.seccomp,
                sockets=choice.confinement.network,
            )
        else:
            popen = start_free()
    pipes = frozenset(f"pipe:[{os.fstat(fd).st_ino}]" for fd in (stdout, stderr))
    return Started(command, popen, Family(popen.pid, command.tag, pipes), status_fd)


def _start_wrapped(
    command: Command, stdio: tuple[int, int, int]
) -> tuple[subprocess.Popen[bytes], int]:
    choice, program = command.choice, command.choice.support.bubblewrap
    assert program is not None
    with ExitStack() as always, ExitStack() as on_failure:
        env_fd = os.memfd_create("environment")
        always.callback(os.close, env_fd)
        os.pwrite(env_fd, bubblewrap.environment_arguments(command.env), 0)
        status_fd, report_fd = os.pipe()
        on_failure.callback(os.close, status_fd)
        always.callback(os.close, report_fd)
        line = bubblewrap.command(
            [command.program, *command.argv[1:]],
            choice.confinement,
            command.cwd,
            program=program,
            proc=choice.support.bubblewrap_proc,
            environment_fd=env_fd,
            status_fd=report_fd,
        )
        env = {environment.TAG_VARIABLE: command.env[environment.TAG_VARIABLE]}

        def begin() -> subprocess.Popen[bytes]:
            return _popen(line, program, "/", env, stdio, pass_fds=(env_fd, report_fd))

        if choice.confinement.network and choice.scoped:
            # It shares our network, but not the abstract sockets, which lie in no file.
            rules = landlock.socket_ruleset()
            popen = landlock.start_restricted(rules, begin, capable=True, outlive=_wait_for)
        else:
            popen = begin()
        on_failure.pop_all()
    return popen, status_fd


def _wait_for(popen: subprocess.Popen[bytes]) -> None:
    """Wait until a child has ended without reaping it."""
    with suppress(ChildProcessError):  # it has been waited for already
        os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOWAIT)


def _popen(
    argv: Sequence[str | bytes],
    program: str,
    cwd: str,
    env: Mapping[str, str],
    stdio: tuple[int, int, int],
    pass_fds: tuple[int, ...] = (),
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        list(argv),
        executable=program,
        cwd=cwd,
        env=env,
        stdin=stdio[0],
        stdout=stdio[1],
        stderr=stdio[2],
        pass_fds=pass_fds,
        close_fds=True,
        start_new_session=True,
    )


def attend(
    started: Started,
    outputs: Mapping[int, Capture],
    stdout: Capture,
    stderr: Capture,
    *,
    feed: tuple[int, bytes | SupportsRead[bytes]] | None = None,
    cancel: Cancellation | None = None,
    closing: Waker | None = None,
    bounds: ProcessBounds | None = None,
) -> ProcessResult:
    """Attend the child to its end and return the result; close the given file descriptors."""
    command, status = started.command, Capture(bubblewrap.STATUS_LIMIT)

    def wardens() -> frozenset[int]:
        first, _ = bubblewrap.read_status(status.read_captured().data)
        found = {started.popen.pid} | ({first} if first else set())
        return frozenset(found if started.status_fd is not None else ())

    def stop() -> None:
        supervision.stop = "cancelled"

    with ExitStack() as stack:
        watch = Watch(started.popen.pid)
        stack.callback(watch.close)
        supervision = Supervision(
            started.popen,
            started.family,
            watch,
            wardens=wardens,
            bounds=bounds,
            outputs=tuple(outputs.values()),
        )
        for fd, capture in outputs.items():
            watch.collect(fd, capture)
        if started.status_fd is not None:
            watch.collect(started.status_fd, status)
        if feed is not None:
            watch.feed(*feed)
        try:
            if cancel is not None:
                watch.on_wake(stack.enter_context(cancel.waking()).fd, stop)
            if closing is not None:
                watch.on_wake(closing.fd, stop)
            ending = supervision.see_through(command.began + command.timeout_s)
        except BaseException as error:
            try:
                supervision.abort()
            except OSError as second:
                raise ProcessFault(
                    f"Cannot list the processes left behind by {command.program!r}: {second}.",
                    rule="process.sweep",
                    hint="Some of them may still be running.",
                ) from error
            raise
    if started.status_fd is not None and ending.outcome == "exited":
        _refuse_unstarted(command, status, stderr)
    return command.describe_end(ending, stdout, stderr)


def _refuse_unstarted(command: Command, status: Capture, stderr: Capture) -> None:
    """Raise ``ProcessFault`` if the sandbox failed, and not the command."""
    _, exit_code = bubblewrap.read_status(status.read_captured().data)
    if exit_code is None:
        said = stderr.read_captured().text().strip() or "it gave no reason"
        raise ProcessFault(
            f"The program {command.program!r} was not started in its sandbox: {said}",
            rule="process.sandbox",
        )
