"""Supervise a started child: wait for it, stop it, and end what it left."""

from __future__ import annotations

import io
import logging
import math
import os
import selectors
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.kernel import ProcessFault
from coilclaw.workspace.process import environment, process_table

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterable, Sequence

    from _typeshed import SupportsRead

    from coilclaw.workspace.process.capture import Capture
    from coilclaw.workspace.process.process_table import Family, ProcessEntry

Exceeded: TypeAlias = Literal["too_much_output", "too_much_memory", "too_many_processes"]
Stopped: TypeAlias = Literal["timed_out", "cancelled"] | Exceeded
Outcome: TypeAlias = Literal["exited", "signalled"] | Stopped

TERMINATE_GRACE_S: Final = 0.5
"""How long a process may take to end after SIGTERM before it gets SIGKILL."""

LINGER_S: Final = 0.2
"""How long what a child left behind may take to end by itself, such as ``tee`` behind a pipe."""

KILL_BOUND_S: Final = 5.0
"""How long we keep sending SIGKILL to what does not end."""

DRAIN_S: Final = 0.5
"""How long to keep reading if an unknown process holds a pipe open."""

_COUNT_EVERY_S: Final = 0.05
"""How often the processes of a child with bounds are counted."""
_FIRST_LOOK_S: Final = 0.001
_LOOK_EVERY_S: Final = 0.02

_CHUNK: Final = 1 << 16
_MAX_WAIT_S: Final = 3600.0
_POLL_S: Final = 0.01
"""How often a child is looked at where the kernel cannot tell us that it ended."""

_log = logging.getLogger(__name__)

WARDENS: Final = 2
"""Processes of the sandbox itself in its user namespace."""
_BLOCK: Final = 512
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class ProcessBounds:
    """The bounds of a program with everything that it starts; beyond one of them it is killed."""

    output_bytes: int
    """Of each stream."""
    memory_bytes: int
    processes: int

    def exceeded_by(self, members: Iterable[ProcessEntry]) -> Exceeded | None:
        """Return the bound that a family of processes exceeds, if any."""
        found = list(members)
        if len(found) > self.processes:
            return "too_many_processes"
        if sum(_resident_bytes(member.pid) for member in found) > self.memory_bytes:
            return "too_much_memory"
        return None


@dataclass(frozen=True, slots=True)
class KernelLimits:
    """What the kernel refuses one process, from its first instruction on."""

    memory_bytes: int
    """Memory that is its own and writable."""
    processes: int | None = None
    """Of the user; it is a bound of the program only in a user namespace of its own."""
    cpu_s: float | None = None
    file_bytes: int | None = None


def limit_command(argv: Sequence[str], limits: KernelLimits) -> list[str]:
    """Return the argv that runs a program within its limits."""
    cpu = None if limits.cpu_s is None else math.ceil(limits.cpu_s)
    try:
        prlimit = environment.find_program("prlimit", {"PATH": environment.DEFAULT_PATH}, "/")
    except ProcessFault:
        parts = ["ulimit -c 0", f"ulimit -d {limits.memory_bytes // 1024}"]
        if cpu is not None:
            parts.append(f"ulimit -t {cpu}")
        if limits.file_bytes is not None:
            parts.append(f"ulimit -f {limits.file_bytes // _BLOCK}")
        return ["/bin/sh", "-c", "; ".join([*parts, 'exec "$@"']), "sh", *argv]
    wanted = {
        "core": 0,
        "cpu": cpu,
        "data": limits.memory_bytes,
        "fsize": limits.file_bytes,
        "nproc": limits.processes,
    }
    given = [f"--{name}={value}" for name, value in wanted.items() if value is not None]
    return [prlimit, *given, "--", *argv]


def _resident_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read(200).split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0  # it has ended


@dataclass(frozen=True, slots=True)
class ProcessEnding:
    """How a child and its family ended.

    ``leftovers`` are processes that had to be killed after the leader ended by itself,
    ``unkillable`` ones that outlived SIGKILL, and ``held_open`` says that a process which we could
    not find kept an output pipe open. A signal inside bubblewrap shows as exit code 128 + signal.
    """

    outcome: Outcome
    exit_code: int | None = None
    signal: int | None = None
    leftovers: tuple[int, ...] = ()
    unkillable: tuple[int, ...] = ()
    held_open: bool = False


class Watch:
    """The pipes of one child and its end. It owns the file descriptors that it is given."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._selector = selectors.PollSelector()
        self._open: set[int] = set()
        self._stdin: int | None = None
        self._source: SupportsRead[bytes] = io.BytesIO()
        self._pending = memoryview(b"")
        self._pidfd = process_table.pidfd_open(pid)
        if self._pidfd is not None:
            self._selector.register(self._pidfd, selectors.EVENT_READ, self._look)
        self.status: os.waitid_result | None = None
        self.ended = False

    @property
    def output_open(self) -> bool:
        """Whether a process still holds the other end of an output pipe."""
        return bool(self._open)

    def collect(self, fd: int, capture: Capture) -> None:
        """Read everything that comes from ``fd`` into ``capture``."""
        os.set_blocking(fd, False)
        self._open.add(fd)
        self._selector.register(fd, selectors.EVENT_READ, lambda: self._collect(fd, capture))

    def feed(self, fd: int, source: bytes | SupportsRead[bytes]) -> None:
        """Write ``source`` to ``fd`` as fast as the child reads it, then close it."""
        os.set_blocking(fd, False)
        self._stdin = fd
        self._source = io.BytesIO(source) if isinstance(source, bytes) else source
        self._selector.register(fd, selectors.EVENT_WRITE, self._feed)

    def on_wake(self, fd: int, action: Callable[[], None]) -> None:
        """Call ``action`` once when ``fd`` becomes readable; the fd stays the caller's."""

        def woken() -> None:
            self._selector.unregister(fd)
            action()

        self._selector.register(fd, selectors.EVENT_READ, woken)

    def pump(self, until: float, done: Callable[[], bool]) -> bool:
        """Keep everything moving until ``done`` or the clock says ``until``; return ``done``."""
        while not done():
            remaining = until - time.monotonic()
            if remaining <= 0:
                return False
            wait = min(remaining, _MAX_WAIT_S if self._pidfd is not None else _POLL_S)
            for key, _ in self._selector.select(wait):
                # An earlier one of the same batch may have closed it.
                if self._selector.get_map().get(key.fd) is key:
                    key.data()
            if self._pidfd is None and not self.ended:
                self._look()
        return True

    def end_feed(self) -> None:
        """Close the child's input, whatever is left to be written."""
        if self._stdin is not None:
            self._selector.unregister(self._stdin)
            os.close(self._stdin)
            self._stdin = None

    def close(self) -> None:
        """Close every file descriptor."""
        for fd in (*self._open, self._stdin, self._pidfd):
            if fd is not None:
                os.close(fd)
        self._open.clear()
        self._stdin = self._pidfd = None
        self._selector.close()

    def _look(self) -> None:
        # The child stays a zombie, so that its process id stays its own until all is swept.
        flags = os.WEXITED | os.WNOWAIT | os.WNOHANG
        try:
            self.status = os.waitid(os.P_PID, self._pid, flags)
            self.ended = self.status is not None
        except ChildProcessError:
            # Another part of this program waited for it: it ended, but we cannot say how.
            self.ended = True
        if self.ended:
            if self._pidfd is not None:
                self._selector.unregister(self._pidfd)
            self.end_feed()

    def _collect(self, fd: int, capture: Capture) -> None:
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return
        if data:
            capture.feed(data)
            return
        self._selector.unregister(fd)
        self._open.discard(fd)
        os.close(fd)

    def _feed(self) -> None:
        """Write what fits of the source; at its end, close the child's input."""
        assert self._stdin is not None
        pending = self._pending or memoryview(self._source.read(_CHUNK))
        try:
            self._pending = pending[os.write(self._stdin, pending) :] if pending else pending
        except BlockingIOError:
            self._pending = pending
        except BrokenPipeError:
            pending = memoryview(b"")  # a child need not read its input to the end
        if not pending:
            self.end_feed()


class Supervision:
    """Brings a family of processes to its end, whatever it does."""

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        family: Family,
        watch: Watch,
        *,
        wardens: Callable[[], frozenset[int]] = frozenset,
        bounds: ProcessBounds | None = None,
        outputs: tuple[Capture, ...] = (),
    ) -> None:
        self._popen = popen
        self._family = family
        self._watch = watch
        # Processes of a sandbox that take all others down with them: these are not asked to end.
        self._wardens = wardens
        self._bounds = bounds
        self._outputs = outputs
        self.stop: Stopped | None = None

    def see_through(self, deadline: float) -> ProcessEnding:
        """Wait for the leader, then leave nothing of its family behind; return how it ended."""
        watch = self._watch
        if not self._wait(deadline):
            self.stop = "timed_out"
        # A child that ended in the same instant was not stopped.
        stopped = None if watch.ended else self.stop
        if stopped in {"timed_out", "cancelled"}:
            # What is beyond a bound is not asked, but killed: asking takes time.
            wardens = self._wardens()
            self._family.signal(signal.SIGTERM, spare=wardens)
            self._wait_until_gone(TERMINATE_GRACE_S, spare=wardens)
        leftovers = () if stopped else self._leave_behind()
        unkillable = self._kill() if stopped or leftovers else ()
        self._wait_for_wardens()
        watch.pump(time.monotonic() + DRAIN_S, lambda: not watch.output_open)
        if self._too_much_output():
            stopped = "too_much_output"  # also where the last of it came with the end
        self._reap()
        pid = self._popen.pid
        if unkillable:
            _log.error("processes %s, started by %d, could not be killed", unkillable, pid)
        if watch.output_open:
            _log.warning("an unknown process holds the output of process %d open", pid)
        end = watch.status
        if end is None and watch.ended:
            what = f"The end of process {pid} was taken by another part of this program."
            raise ProcessFault(what, rule="process.lost")
        exited = end is not None and end.si_code == os.CLD_EXITED
        return ProcessEnding(
            stopped or ("exited" if exited else "signalled"),
            exit_code=end.si_status if end and exited else None,
            signal=end.si_status if end and not exited else None,
            leftovers=leftovers,
            unkillable=unkillable,
            held_open=watch.output_open,
        )

    def _wait(self, deadline: float) -> bool:
        """Wait until the leader ends or has to be stopped; false when the time is up."""
        watch = self._watch
        while True:
            until = deadline
            if self._bounds is not None:
                until = min(deadline, time.monotonic() + _COUNT_EVERY_S)
            if watch.pump(until, lambda: watch.ended or bool(self.stop) or self._too_much_output()):
                self.stop = "too_much_output" if self._too_much_output() else self.stop
                return True
            if time.monotonic() >= deadline:
                return False
            if self._bounds is not None:
                wardens = self._wardens()
                members = [one for one in self._family.members() if one.pid not in wardens]
                self.stop = self._bounds.exceeded_by(members) or self.stop

    def _too_much_output(self) -> bool:
        most = None if self._bounds is None else self._bounds.output_bytes
        return most is not None and any(capture.total > most for capture in self._outputs)

    def abort(self) -> None:
        """Kill everything, because something else failed."""
        # What was to be fed may be what failed.
        self._watch.end_feed()
        try:
            self._kill()
        finally:
            self._watch.pump(time.monotonic() + KILL_BOUND_S, lambda: self._watch.ended)
            self._reap()

    def _reap(self) -> None:
        if self._watch.ended:
            self._popen.wait()

    def _leave_behind(self) -> tuple[int, ...]:
        """Ask what the leader left to end; return what did not by itself."""
        if self._family.alone():
            return ()
        left = self._wait_until_gone(LINGER_S)
        if left:
            self._family.signal(signal.SIGTERM)
            self._wait_until_gone(TERMINATE_GRACE_S)
        return tuple(member.pid for member in left)

    def _wait_until_gone(
        self, bound_s: float, spare: frozenset[int] = frozenset()
    ) -> list[ProcessEntry]:
        """Wait for the family to end; return what is still there after ``bound_s``."""
        family = self._family
        return self._repeat(bound_s, lambda: [m for m in family.members() if m.pid not in spare])

    def _repeat(self, bound_s: float, look: Callable[[], list[ProcessEntry]]) -> list[ProcessEntry]:
        """Look until nothing is left; return what still is after ``bound_s``."""
        until = time.monotonic() + bound_s
        pause = _FIRST_LOOK_S
        while left := look():
            now = time.monotonic()
            if now >= until:
                return left
            self._pause(min(until - now, pause))
            pause = min(2 * pause, _LOOK_EVERY_S)
        return []

    def _wait_for_wardens(self) -> None:
        """Wait until the first process of a sandbox has ended, which it does after all others.

        It reports the end of the command before, and while it ends it cannot be told by its tag.
        """
        until = time.monotonic() + KILL_BOUND_S
        for pid in self._wardens() - {self._popen.pid}:
            while (found := process_table.member(pid)) and not found.ended:
                if time.monotonic() >= until:
                    break
                self._pause(_FIRST_LOOK_S)

    def _kill(self) -> tuple[int, ...]:
        """Kill the whole family, again and again while it grows; return what does not die."""
        until = time.monotonic() + KILL_BOUND_S
        left = self._repeat(KILL_BOUND_S, lambda: self._family.signal(signal.SIGKILL))
        if left:
            return tuple(member.pid for member in left)
        ended = self._watch.pump(until, lambda: self._watch.ended)
        return () if ended else (self._family.leader,)

    def _pause(self, seconds: float) -> None:
        """Keep the pipes moving for a moment: a full one would hold a process up from ending."""
        ended = self._watch.ended
        self._watch.pump(time.monotonic() + seconds, lambda: self._watch.ended and not ended)
