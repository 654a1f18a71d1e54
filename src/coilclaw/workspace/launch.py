"""Start a child, confined as chosen, and see it through to its end."""

from __future__ import annotations

import math
import os
import select
import subprocess
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coilclaw.errors import ProcessFault, UsageError
from coilclaw.workspace import bubblewrap, environment, landlock
from coilclaw.workspace.cancel import Waker
from coilclaw.workspace.capture import Capture
from coilclaw.workspace.confinement import Confinement
from coilclaw.workspace.reaper import Family
from coilclaw.workspace.supervise import Ending, Stopped, Supervision
from coilclaw.workspace.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from coilclaw.workspace.cancel import Cancellation
    from coilclaw.workspace.process_bounds import ProcessBounds
    from coilclaw.workspace.sandbox import Choice


@dataclass(frozen=True, slots=True)
class Command:
    """What to start: checked, and the program found."""

    argv: tuple[str | bytes, ...]
    program: str
    cwd: str
    env: Mapping[str, str]
    tag: str


@dataclass(frozen=True, slots=True)
class Started:
    """A running child and its family; ``status_fd`` is where bubblewrap reports."""

    command: Command
    popen: subprocess.Popen[bytes]
    family: Family
    status_fd: int | None


def check(
    argv: Sequence[str | bytes],
    cwd: str | Path,
    timeout_s: float,
    env: Mapping[str, str],
    confinement: Confinement | None = None,
) -> Command:
    """Refuse what cannot be started; the command is as the child sees it."""
    if isinstance(argv, str | bytes):
        raise UsageError(
            "A process is started from a list of arguments, not from one string.",
            rule="process.argv",
        )
    if not argv or not argv[0]:
        raise UsageError("There is no program to start.", rule="process.argv")
    for index, argument in enumerate(argv):
        if not environment.can_be_passed(argument):
            raise UsageError(
                f"Argument {index} holds a NUL or a character that has no bytes.",
                rule="process.argv",
            )
    if not (math.isfinite(timeout_s) and timeout_s > 0):
        raise UsageError(
            f"The time limit of a process is {timeout_s} seconds; it has to be positive.",
            rule="process.timeout",
        )
    if not os.path.isdir(cwd):
        raise UsageError(f"{str(cwd)!r} is not a directory to run in.", rule="process.cwd")
    confinement = confinement or Confinement()
    directory = confinement.inside(os.path.realpath(cwd))
    tag = environment.new_tag()
    return Command(
        argv=tuple(argv),
        program=environment.find_program(argv[0], env, directory, confinement.outside),
        cwd=directory,
        env=environment.tagged(env, tag),
        tag=tag,
    )


@contextmanager
def starting(command: Command) -> Iterator[None]:
    """Name the program in whatever the operating system has against starting it."""
    try:
        yield
    except OSError as error:
        raise ProcessFault(
            f"The program {command.program!r} could not be started: {error.strerror or error}.",
            rule="process.start",
        ) from error


def start(command: Command, choice: Choice, stdin: int, stdout: int, stderr: int) -> Started:
    """Start the child with these as its 0, 1 and 2; they stay the caller's.

    ``stdout`` and ``stderr`` are pipes that nobody else has: who holds one belongs to the child.
    """
    stdio = (stdin, stdout, stderr)
    status_fd = None
    with starting(command):
        if choice.enforced.kind == "bubblewrap":
            popen, status_fd = _start_wrapped(command, choice, stdio)
        elif choice.enforced.kind == "landlock":
            popen = _start_restricted(command, choice, stdio)
        else:
            popen = _start_free(command, stdio)
    pipes = frozenset(f"pipe:[{os.fstat(fd).st_ino}]" for fd in (stdout, stderr))
    return Started(command, popen, Family(popen.pid, command.tag, pipes), status_fd)


def _start_free(command: Command, stdio: tuple[int, int, int]) -> subprocess.Popen[bytes]:
    return _popen(command.argv, command.program, command.cwd, command.env, stdio)


def _start_restricted(
    command: Command, choice: Choice, stdio: tuple[int, int, int]
) -> subprocess.Popen[bytes]:
    rules = landlock.ruleset(choice.confinement, choice.support.landlock_abi)
    try:
        return landlock.restricted(
            rules,
            lambda: _start_free(command, stdio),
            filtered=choice.support.seccomp,
            sockets=choice.confinement.network,
        )
    finally:
        os.close(rules)


def _start_wrapped(
    command: Command, choice: Choice, stdio: tuple[int, int, int]
) -> tuple[subprocess.Popen[bytes], int]:
    program = choice.support.bubblewrap
    assert program is not None
    with ExitStack() as always, ExitStack() as on_failure:
        env_fd = os.memfd_create("environment")
        always.callback(os.close, env_fd)
        with open(env_fd, "wb", closefd=False) as file:
            file.write(bubblewrap.environment_arguments(command.env))
        os.lseek(env_fd, 0, os.SEEK_SET)
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
        popen = _without_abstract_sockets(
            choice, lambda: _popen(line, program, "/", env, stdio, pass_fds=(env_fd, report_fd))
        )
        on_failure.pop_all()
    return popen, status_fd


def _without_abstract_sockets(
    choice: Choice, begin: Callable[[], subprocess.Popen[bytes]]
) -> subprocess.Popen[bytes]:
    """Start a child that shares our network, but not the abstract sockets, which lie in no file."""
    if not choice.confinement.network or not choice.scoped:
        return begin()
    rules = landlock.socket_ruleset()
    try:
        return landlock.restricted(rules, begin, capable=True, outlive=_wait_for)
    finally:
        os.close(rules)


def _wait_for(popen: subprocess.Popen[bytes]) -> None:
    """Wait until a child has ended, and leave it to others to learn how."""
    try:
        fd = os.pidfd_open(popen.pid)
    except ProcessLookupError:
        return  # it has been waited for already
    try:
        waiting = select.poll()
        waiting.register(fd, select.POLLIN)
        waiting.poll()
    finally:
        os.close(fd)


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
    *,
    deadline: float,
    outputs: Mapping[int, Capture],
    errors: Capture,
    feed: tuple[int, bytes | BinaryIO] | None = None,
    cancel: Cancellation | None = None,
    closing: Waker | None = None,
    bounds: ProcessBounds | None = None,
) -> Ending:
    """See the child through to its end. The file descriptors given are closed with it.

    ``errors`` is the one of the captures that holds what bubblewrap has to say.
    """
    status = Capture(bubblewrap.STATUS_LIMIT)
    with ExitStack() as stack:
        watch = Watch(started.popen.pid)
        stack.callback(watch.close)
        supervision = Supervision(
            started.popen,
            started.family,
            watch,
            wardens=lambda: _wardens(started, status),
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
                waker = Waker()
                stack.callback(waker.close)
                stack.callback(cancel.detach, waker)
                cancel.attach(waker)
                watch.on_wake(waker.fd, _stopper(supervision))
            if closing is not None:
                watch.on_wake(closing.fd, _stopper(supervision))
            ending = supervision.see_through(deadline)
        except BaseException as error:
            _abort(supervision, started, error)
            raise
    if started.status_fd is not None and ending.outcome == "exited":
        _refuse_unstarted(started, status, errors)
    return ending


def _abort(supervision: Supervision, started: Started, error: BaseException) -> None:
    try:
        supervision.abort()
    except OSError as second:
        raise ProcessFault(
            f"What {started.command.program!r} left behind could not be looked for: {second}.",
            rule="process.sweep",
            hint="Something of it may still be running.",
        ) from error


def _stopper(supervision: Supervision) -> Callable[[], None]:
    def stop() -> None:
        stopped: Stopped = "cancelled"
        supervision.stop = stopped

    return stop


def _wardens(started: Started, status: Capture) -> frozenset[int]:
    if started.status_fd is None:
        return frozenset()
    first, _ = bubblewrap.read_status(status.captured().data)
    return frozenset({started.popen.pid} | ({first} if first else set()))


def _refuse_unstarted(started: Started, status: Capture, errors: Capture) -> None:
    """Tell a sandbox that failed from a command that did."""
    _, exit_code = bubblewrap.read_status(status.captured().data)
    if exit_code is None:
        said = errors.captured().text().strip() or "it gave no reason"
        raise ProcessFault(
            f"The program {started.command.program!r} was not started in its sandbox: {said}",
            rule="process.sandbox",
        )
