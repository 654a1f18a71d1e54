"""Running what was submitted: ``run`` to its end, ``start`` to speak with it."""

from __future__ import annotations

import os
import select
import signal as signals
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from coilclaw.environments import containment
from coilclaw.environments import scope as scopes
from coilclaw.environments.checks import CaseFailed
from coilclaw.environments.containment import Limits
from coilclaw.environments.scope import Scope, ScopeOver
from coilclaw.errors import ProcessFault, UsageError
from coilclaw.workspace import environment, process

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from coilclaw.workspace.process import LiveProcess, ProcessResult

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
) -> RunResult:
    """Run a program of the submission to its end, confined; one text is a line for the shell.

    A program that is not there ends with exit code 127, as in a shell. Its directory is the case's
    own, and while the submission is being built, the submission's.
    """
    scope = scopes.current()
    plan = _Plan.of(command, cwd, env, timeout_s, limits, scope)
    if isinstance(plan, RunResult):
        return plan
    given = stdin.encode() if isinstance(stdin, str) else stdin
    done = process.run(
        plan.argv,
        cwd=plan.cwd,
        timeout_s=plan.timeout_s,
        env=plan.env,
        stdin=given,
        limit_bytes=output_bytes,
        sandbox=containment.confined(scope),
        support=scope.support,
        cancel=scope.cancel,
    )
    if done.outcome == "cancelled":
        raise ScopeOver
    if done.outcome == "timed_out":
        scope.remaining()  # raises if it was the case's own time
    return _result(done)


def start(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    limits: Limits = DEFAULT_LIMITS,
) -> Program:
    """Start a program of the submission to speak with it line by line; it ends with the case."""
    scope = scopes.current()
    plan = _Plan.of(command, cwd, env, timeout_s, limits, scope)
    if isinstance(plan, RunResult):
        raise CaseFailed(plan.stderr, kind="missing")
    live = process.open(
        plan.argv,
        cwd=plan.cwd,
        timeout_s=plan.timeout_s,
        env=plan.env,
        limit_bytes=OUTPUT_BYTES,
        sandbox=containment.confined(scope),
        support=scope.support,
        cancel=scope.cancel,
    )
    program = Program(live, plan.timeout_s, scope)
    scope.started.append(program)
    return program


class Program:
    """A program that runs while a test speaks with it; leaving the ``with`` block ends it."""

    def __init__(self, live: LiveProcess, timeout_s: float, scope: Scope) -> None:
        self._live = live
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
            self._result = _result(self._live.close(0.0))

    def close(self, grace_s: float = DEFAULT_TIMEOUT_S) -> RunResult:
        """Close its input and wait for its end; one that does not end in time is killed."""
        if self._result is None:
            self._live.stdin.close()
            ended = self._live.wait(min(grace_s, self._timeout_s))
            done = _result(self._live.close(0.0))
            self._result = done if ended is not None else replace(done, timed_out=True)
        return self._result

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
        line = containment.limited([program, *argv[1:]], limits, seconds, scope.support)
        return cls(line, str(directory), given, seconds)


def _result(done: ProcessResult) -> RunResult:
    number = done.signal
    code = done.exit_code
    if number is None and code is not None and code > _SIGNAL_BASE:
        # A shell, and the first process of a namespace, say it this way.
        number = code - _SIGNAL_BASE if code - _SIGNAL_BASE < signals.NSIG else None
    return RunResult(
        stdout=done.stdout.data.decode("utf-8", "replace"),
        stderr=done.stderr.text(),
        exit_code=code,
        signal=number,
        timed_out=done.outcome == "timed_out",
        truncated=bool(done.stdout.dropped),
        duration_ms=int(done.duration_s * 1000),
        stdout_bytes=done.stdout.data,
    )
