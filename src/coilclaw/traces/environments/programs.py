"""Run what was submitted: ``run`` to its end, ``start`` to speak with it; each in a ``Scope``."""

from __future__ import annotations

import os
import select
import signal as signals
import time
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import ProcessFault, UsageError
from coilclaw.traces.environments import containment
from coilclaw.traces.environments.checks import CaseFailed
from coilclaw.traces.environments.containment import DEFAULT_LIMITS, Cover, Limits, Tools
from coilclaw.traces.environments.results import MAX_LOG
from coilclaw.traces.environments.sandbox_boxes import Box, Errand, Slot
from coilclaw.workspace import Cancellation, environment
from coilclaw.workspace import command as process

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Self

    from coilclaw.workspace import Captured, LiveProcess, ProcessResult, Sandbox, SandboxSupport

OUTPUT_BYTES: Final = 2**20
MAX_LINE_BYTES: Final = 2**20
DEFAULT_TIMEOUT_S: Final = 10.0
NOT_FOUND: Final = 127
_SIGNAL_BASE: Final = 128
_KILL_S: Final = 10.0
_SLICE_MS: Final = 50
_READ_BYTES: Final = 2**16
_KEPT: Final = 4 * MAX_LOG
_scope: ContextVar[ProgramScope] = ContextVar("scope")


class ScopeOver(Exception):
    """The time of a handler is up; whatever it tries next ends it."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class ProgramScope:
    """One call of one handler."""

    session: Path
    """The submission as it was built."""
    directory: Path
    """Where programs may write: the case's own, or while it is being built, the session."""
    temporary: Path
    """The home and the temporary files of programs; made when one is started."""
    support: SandboxSupport
    timeout_s: float
    tools: Tools
    hidden: tuple[Path, ...] = ()
    slot: Slot | None = None
    """Where the cases run among which this is one, if it is."""
    began: float = field(default_factory=time.monotonic)
    cancel: Cancellation = field(default_factory=Cancellation)
    started: list[Program] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    size: int = 0
    covers: int = 0

    def remaining(self) -> float:
        """Return the seconds that are left; raise ``ScopeOver`` if none are."""
        left = self.began + self.timeout_s - time.monotonic()
        if left <= 0 or self.cancel.cancelled:
            raise ScopeOver
        return left

    @property
    def apart(self) -> Path:
        """A place of the judge's own, which programs do not see."""
        above = self.slot.apart if self.slot is not None else self.temporary.parent
        return above / f"{self.temporary.name}.apart"

    def hide(self, path: Path) -> None:
        """Keep a place from the programs that are started from now on."""
        if path not in self.hidden:
            self.hidden = (*self.hidden, path)

    def say(self, text: str) -> None:
        """Add to the log, which keeps its beginning."""
        room = _KEPT - self.size
        if room > 0:
            self.said.append(text[:room])
            self.size += len(text[:room])

    def log(self) -> str:
        return "".join(self.said)

    def end(self) -> None:
        """End everything that was started in it."""
        self.cancel.cancel("the case is over")
        while self.started:
            self.started.pop().kill()


def current() -> ProgramScope:
    """Return the scope of the running handler, or raise."""
    try:
        return _scope.get()
    except LookupError:
        message = "this is for a setup, a test or a teardown that is running"
        raise UsageError(message, rule="environment.scope") from None


def talking() -> ProgramScope | None:
    """Return the scope that printed text belongs to now, if any."""
    return _scope.get(None)


@contextmanager
def enter_scope(scope: ProgramScope) -> Iterator[ProgramScope]:
    """Run a handler in a scope, and leave nothing of it behind."""
    token = _scope.set(scope)
    try:
        yield scope
    finally:
        _scope.reset(token)
        scope.end()


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
    scope = current()
    given = stdin.encode() if isinstance(stdin, str) else stdin
    errand = _plan(command, cwd, env, timeout_s, limits, scope)
    if isinstance(errand, RunResult):
        return errand
    errand = replace(errand, stdin=given, output_bytes=output_bytes)
    if shared and scope.slot is not None and containment.can_cover(scope.support):
        box = scope.slot.box(scope, tuple(without))
        return _run_in_box(box, replace(errand, first=scope.slot.is_first(scope)), scope)
    sandbox, cover = _cover(scope, without)
    with ExitStack() as covers:
        covers.callback(cover.close)
        done = process.run(
            errand.argv,
            cwd=errand.cwd,
            timeout_s=errand.timeout_s,
            env=errand.env,
            stdin=given,
            limit_bytes=output_bytes,
            sandbox=sandbox,
            support=scope.support,
            cancel=scope.cancel,
        )
        touched = cover.find_touched()
    if done.outcome == "cancelled":
        raise ScopeOver
    if done.outcome == "timed_out":
        scope.remaining()  # raises if it was the case's own time
    return replace(_result_of(done), touched=touched)


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
    scope = current()
    errand = _plan(command, cwd, env, timeout_s, limits, scope)
    if isinstance(errand, RunResult):
        raise CaseFailed(errand.stderr, kind="missing")
    sandbox, cover = _cover(scope, without)
    with ExitStack() as covers:
        covers.callback(cover.close)
        live = process.open(
            errand.argv,
            cwd=errand.cwd,
            timeout_s=errand.timeout_s,
            env=errand.env,
            limit_bytes=OUTPUT_BYTES,
            sandbox=sandbox,
            support=scope.support,
            cancel=scope.cancel,
        )
        program = Program(live, errand.timeout_s, scope, cover)
        covers.pop_all()  # it is the program's from now on
    scope.started.append(program)
    return program


@dataclass(slots=True, eq=False)
class Program:
    """A program that runs while a test speaks with it; leaving the ``with`` block ends it."""

    _live: LiveProcess
    _timeout_s: float
    _scope: ProgramScope
    _cover: Cover
    _held: bytes = b""
    _result: RunResult | None = None

    def send(self, text: str | bytes) -> None:
        """Write to its input; a line needs its own end."""
        try:
            self._live.stdin.write(text.encode() if isinstance(text, str) else text)
        except (BrokenPipeError, ValueError):
            self._scope.remaining()
            raise CaseFailed(
                self._describe_end("before it had read its input"), kind="crash"
            ) from None

    def receive(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> str:
        """Return the next line that it writes, without its end."""
        until = time.monotonic() + min(timeout_s, self._scope.remaining())
        while b"\n" not in self._held:
            if len(self._held) > MAX_LINE_BYTES:
                raise CaseFailed("a line of its output has no end", kind="output_limit")
            data = self._read_more(until, timeout_s)
            if not data:
                raise CaseFailed(self._describe_end("instead of answering"), kind="crash")
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
            self._result = self._end()

    def close(self, grace_s: float = DEFAULT_TIMEOUT_S) -> RunResult:
        """Close its input and wait for its end; one that does not end in time is killed."""
        if self._result is None:
            self._live.stdin.close()
            ended = self._live.wait(min(grace_s, self._timeout_s))
            done = self._end()
            self._result = done if ended is not None else replace(done, timed_out=True)
        return self._result

    def _end(self) -> RunResult:
        done = replace(_result_of(self._live.close(0.0)), touched=self._cover.find_touched())
        self._cover.close()
        return done

    def _read_more(self, until: float, timeout_s: float) -> bytes:
        poll = select.poll()
        poll.register(self._live.stdout.fileno(), select.POLLIN)
        while not poll.poll(_SLICE_MS):
            if self._live.result is not None:
                return b""
            if time.monotonic() >= until:
                self._scope.remaining()
                raise CaseFailed(f"no answer within {timeout_s:g} seconds", kind="timeout")
        return self._live.stdout.read1(_READ_BYTES)

    def _describe_end(self, when: str) -> str:
        result = self._live.wait(1.0)
        said = "" if result is None else result.stderr.text().strip()[-2000:]
        return f"the program ended {when}" + (f"; it said:\n{said}" if said else "")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def _plan(
    command: Sequence[str | Path] | str,
    cwd: Path | None,
    env: Mapping[str, str] | None,
    timeout_s: float,
    limits: Limits,
    scope: ProgramScope,
) -> Errand | RunResult:
    """Return what to start, within its limits, or the result of a program that does not exist."""
    argv = ["/bin/sh", "-c", command] if isinstance(command, str) else [*map(str, command)]
    if not argv:
        raise UsageError("run was given no program", rule="environment.run")
    given = containment.environ(scope, env or {})
    directory = str(scope.directory if cwd is None else cwd)
    os.makedirs(scope.temporary, exist_ok=True)
    seconds = min(timeout_s, scope.remaining())
    try:
        program = environment.find_program(argv[0], given, directory)
    except ProcessFault as fault:
        return RunResult("", fault.message, NOT_FOUND)
    limited = containment.limit_program([program, *argv[1:]], limits, seconds, scope.support)
    return Errand(limited, directory, given, seconds)


def _cover(scope: ProgramScope, without: Sequence[Path]) -> tuple[Sandbox, Cover]:
    """Return the sandbox of one program, with a cover of its own if it is to be without a file."""
    plan = containment.confine_program(scope, without)
    if not plan.originals or not containment.can_cover(scope.support):
        return plan.sandbox(), Cover()
    scope.covers += 1
    # Beside what its programs may write, where they do not see it.
    cover = Cover(scope.apart / f"cover-{scope.covers}", plan.originals)
    return plan.sandbox(cover), cover


def _run_in_box(box: Box, errand: Errand, scope: ProgramScope) -> RunResult:
    if not all(map(environment.can_be_passed, errand.argv)):
        raise UsageError("an argument holds a NUL", rule="environment.run")
    began = time.monotonic()
    done = box.run(errand, scope.cancel)
    if done.cancelled:
        raise ScopeOver
    if done.timed_out:
        scope.remaining()
    lost = done.code is None and not done.timed_out
    result = _make_result(done.stdout, done.stderr, done.code, time.monotonic() - began)
    signal = signals.SIGKILL if lost else result.signal
    touched = box.cover.find_touched()
    return replace(result, signal=signal, timed_out=done.timed_out, touched=touched)


def _result_of(done: ProcessResult) -> RunResult:
    result = _make_result(done.stdout, done.stderr, done.exit_code, done.duration_s)
    signal = result.signal if done.signal is None else done.signal
    return replace(result, signal=signal, timed_out=done.outcome == "timed_out")


def _make_result(stdout: Captured, stderr: Captured, code: int | None, seconds: float) -> RunResult:
    # What a shell, or the first process of a namespace, means by such an exit code.
    number = (code or 0) - _SIGNAL_BASE
    return RunResult(
        stdout=stdout.data.decode("utf-8", "replace"),
        stderr=stderr.text(),
        exit_code=code,
        signal=number if 0 < number < signals.NSIG else None,
        truncated=bool(stdout.dropped),
        duration_ms=int(seconds * 1000),
        stdout_bytes=stdout.data,
    )
