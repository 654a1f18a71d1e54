"""Running what was submitted: ``run`` to its end, ``start`` to speak with it."""

from __future__ import annotations

import os
import select
import signal as signals
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from coilclaw.environments import containment, covering
from coilclaw.environments import scope as scopes
from coilclaw.environments.boxes import Errand
from coilclaw.environments.checks import CaseFailed
from coilclaw.environments.containment import Limits
from coilclaw.environments.covering import Cover
from coilclaw.environments.scope import Scope, ScopeOver
from coilclaw.errors import ProcessFault, UsageError
from coilclaw.workspace import environment, process

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from coilclaw.environments.boxes import Box
    from coilclaw.workspace.process import LiveProcess, ProcessResult
    from coilclaw.workspace.sandbox import Sandbox

OUTPUT_BYTES: Final = 2**20
MAX_LINE_BYTES: Final = 2**20
DEFAULT_TIMEOUT_S: Final = 10.0
NOT_FOUND: Final = 127
DEFAULT_LIMITS: Final = Limits()
_SIGNAL_BASE: Final = 128
_KILL_S: Final = 10.0
_SLICE_MS: Final = 50
_READ_BYTES: Final = 2**16


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a program ended and what it wrote; ``truncated`` if that was more than is kept.

    Inside a namespace a signal shows as an exit code above 128; ``signal`` says it either way.
    """

    stdout: str
    stderr: str
    exit_code: int | None
    signal: int | None = None
    timed_out: bool = False
    truncated: bool = False
    duration_ms: int = 0
    stdout_bytes: bytes = b""
    touched: tuple[str, ...] = ()
    """The files among ``without`` that it opened or executed."""

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.timed_out


def run(
    command: Sequence[str | Path] | str,
    *,
    stdin: str | bytes = b"",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    limits: Limits = DEFAULT_LIMITS,
    output_bytes: int = OUTPUT_BYTES,
    without: Sequence[Path] = (),
    shared: bool = False,
) -> RunResult:
    """Run a program of the submission to its end, confined; one text is a line for the shell.

    A program that is not there ends with exit code 127, as in a shell. Its directory is the case's
    own, and while the submission is being built, the submission's. ``without`` names files that it
    must not use: stand-ins are in their places, and ``touched`` tells of it. ``shared`` has it run
    in a sandbox that the cases of a slot share one after the other, which is quicker to start.
    """
    scope = scopes.current()
    plan = _Plan.of(command, cwd, env, timeout_s, limits, scope)
    if isinstance(plan, RunResult):
        return plan
    given = stdin.encode() if isinstance(stdin, str) else stdin
    if shared and scope.slot is not None and covering.possible(scope.support):
        box = scope.slot.box(scope, tuple(without))
        errand = plan.errand(given, output_bytes, first=scope.slot.is_first(scope))
        return _boxed(box, errand, scope)
    sandbox, cover = _covered(scope, without)
    with ExitStack() as covers:
        covers.callback(cover.close)
        done = process.run(
            plan.limited(scope),
            cwd=plan.cwd,
            timeout_s=plan.timeout_s,
            env=plan.env,
            stdin=given,
            limit_bytes=output_bytes,
            sandbox=sandbox,
            support=scope.support,
            cancel=scope.cancel,
        )
        touched = cover.touched()
    if done.outcome == "cancelled":
        raise ScopeOver
    if done.outcome == "timed_out":
        scope.remaining()  # raises if it was the case's own time
    return replace(_result(done), touched=touched)


def start(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    limits: Limits = DEFAULT_LIMITS,
    without: Sequence[Path] = (),
) -> Program:
    """Start a program of the submission to speak with it line by line; it ends with the case."""
    scope = scopes.current()
    plan = _Plan.of(command, cwd, env, timeout_s, limits, scope)
    if isinstance(plan, RunResult):
        raise CaseFailed(plan.stderr, kind="missing")
    sandbox, cover = _covered(scope, without)
    with ExitStack() as covers:
        covers.callback(cover.close)
        live = process.open(
            plan.limited(scope),
            cwd=plan.cwd,
            timeout_s=plan.timeout_s,
            env=plan.env,
            limit_bytes=OUTPUT_BYTES,
            sandbox=sandbox,
            support=scope.support,
            cancel=scope.cancel,
        )
        program = Program(live, plan.timeout_s, scope, cover)
        covers.pop_all()  # it is the program's from now on
    scope.started.append(program)
    return program


class Program:
    """A program that runs while a test speaks with it; leaving the ``with`` block ends it."""

    def __init__(self, live: LiveProcess, timeout_s: float, scope: Scope, cover: Cover) -> None:
        self._live = live
        self._cover = cover
        self._timeout_s = timeout_s
        self._scope = scope
        self._held = b""
        self._result: RunResult | None = None

    def send(self, text: str | bytes) -> None:
        """Write to its input; a line needs its own end."""
        try:
            self._live.stdin.write(text.encode() if isinstance(text, str) else text)
        except (BrokenPipeError, ValueError):
            self._scope.remaining()
            raise CaseFailed(self._gone("before it had read its input"), kind="crash") from None

    def receive(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> str:
        """Return the next line that it writes, without its end."""
        until = time.monotonic() + min(timeout_s, self._scope.remaining())
        while b"\n" not in self._held:
            if len(self._held) > MAX_LINE_BYTES:
                raise CaseFailed("a line of its output has no end", kind="output_limit")
            data = self._more(until, timeout_s)
            if not data:
                raise CaseFailed(self._gone("instead of answering"), kind="crash")
            self._held += data
        line, _, self._held = self._held.partition(b"\n")
        return line.decode("utf-8", "replace")

    def ask(self, line: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> str:
        """Send one line and return the one that answers it."""
        self.send(f"{line}\n")
        return self.receive(timeout_s)

    def kill(self) -> None:
        """Kill it at once, without any chance to tidy up, and wait until it is gone."""
        if self._result is None:
            if self._live.result is None:
                with suppress(ProcessLookupError):  # it may just have ended by itself
                    os.killpg(self._live.pid, signals.SIGKILL)
                # Were its input closed before it is dead, it could still act on that.
                self._live.wait(_KILL_S)
            self._result = self._ended()

    def close(self, grace_s: float = DEFAULT_TIMEOUT_S) -> RunResult:
        """Close its input and wait for its end; one that does not end in time is killed."""
        if self._result is None:
            self._live.stdin.close()
            ended = self._live.wait(min(grace_s, self._timeout_s))
            done = self._ended()
            self._result = done if ended is not None else replace(done, timed_out=True)
        return self._result

    def _ended(self) -> RunResult:
        done = _result(self._live.close(0.0))
        touched = self._cover.touched()
        self._cover.close()
        return replace(done, touched=touched)

    def _more(self, until: float, timeout_s: float) -> bytes:
        poll = select.poll()
        poll.register(self._live.stdout.fileno(), select.POLLIN)
        while not poll.poll(_SLICE_MS):
            if self._live.result is not None:
                return b""
            if time.monotonic() >= until:
                self._scope.remaining()
                raise CaseFailed(f"no answer within {timeout_s:g} seconds", kind="timeout")
        return self._live.stdout.read1(_READ_BYTES)

    def _gone(self, when: str) -> str:
        result = self._live.wait(1.0)
        said = "" if result is None else result.stderr.text().strip()[-2000:]
        return f"the program ended {when}" + (f"; it said:\n{said}" if said else "")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is to be started, once it is known that it can be."""

    argv: list[str]
    cwd: str
    env: dict[str, str]
    timeout_s: float
    limits: Limits

    def limited(self, scope: Scope) -> list[str]:
        """The argv that starts it within its limits."""
        return containment.limited(self.argv, self.limits, self.timeout_s, scope.support)

    def errand(self, stdin: bytes, output_bytes: int, *, first: bool) -> Errand:
        return Errand(
            self.argv, self.cwd, self.env, stdin, self.timeout_s, self.limits, output_bytes, first
        )

    @classmethod
    def of(
        cls,
        command: Sequence[str | Path] | str,
        cwd: Path | None,
        env: Mapping[str, str] | None,
        timeout_s: float,
        limits: Limits,
        scope: Scope,
    ) -> _Plan | RunResult:
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else [*map(str, command)]
        if not argv:
            raise UsageError("there is no program to run", rule="environment.run")
        given = containment.environ(scope, env or {})
        directory = scope.directory if cwd is None else cwd
        os.makedirs(scope.temporary, exist_ok=True)
        seconds = min(timeout_s, scope.remaining())
        try:
            program = environment.find_program(argv[0], given, str(directory))
        except ProcessFault as fault:
            return RunResult("", fault.message, NOT_FOUND)
        return cls([program, *argv[1:]], str(directory), given, seconds, limits)


def _covered(scope: Scope, without: Sequence[Path]) -> tuple[Sandbox, Cover]:
    """Return the sandbox of one program, with a cover of its own if it is to be without a file."""
    plan = containment.confined(scope, without)
    if not plan.originals or not covering.possible(scope.support):
        return plan.sandbox(), Cover.of_nothing()
    scope.covers += 1
    # Beside what its programs may write, where they do not see it.
    cover = Cover(scope.apart / f"cover-{scope.covers}", plan.originals)
    return plan.sandbox(cover), cover


def _boxed(box: Box, errand: Errand, scope: Scope) -> RunResult:
    for argument in errand.argv:
        if not environment.can_be_passed(argument):
            raise UsageError("an argument holds a NUL", rule="environment.run")
    began = time.monotonic()
    done = box.run(errand, scope.cancel)
    if done.cancelled:
        raise ScopeOver
    if done.timed_out:
        scope.remaining()
    lost = done.code is None and not done.timed_out
    return RunResult(
        stdout=done.stdout.data.decode("utf-8", "replace"),
        stderr=done.stderr.text(),
        exit_code=done.code,
        signal=signals.SIGKILL if lost else _signal_of(done.code),
        timed_out=done.timed_out,
        truncated=bool(done.stdout.dropped),
        duration_ms=int((time.monotonic() - began) * 1000),
        stdout_bytes=done.stdout.data,
        touched=box.cover.touched(),
    )


def _signal_of(code: int | None) -> int | None:
    """The signal that a shell, or the first process of a namespace, means by an exit code."""
    number = (code or 0) - _SIGNAL_BASE
    return number if 0 < number < signals.NSIG else None


def _result(done: ProcessResult) -> RunResult:
    return RunResult(
        stdout=done.stdout.data.decode("utf-8", "replace"),
        stderr=done.stderr.text(),
        exit_code=done.exit_code,
        signal=_signal_of(done.exit_code) if done.signal is None else done.signal,
        timed_out=done.outcome == "timed_out",
        truncated=bool(done.stdout.dropped),
        duration_ms=int(done.duration_s * 1000),
        stdout_bytes=done.stdout.data,
    )
