"""Sandboxes that stay up while programs run in them, one after the other, and their directories.

Putting a sandbox up takes longer than most small programs do. In a box it is done once: a shell in
it starts each program, with limits and pipes of its own, and kills everything that is left when the
program has ended. A program that takes too long is ended with the whole box.
"""

from __future__ import annotations

import os
import secrets
import select
import shlex
import signal
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import EnvironmentFault
from coilclaw.traces.environments import containment
from coilclaw.traces.environments.containment import Cover
from coilclaw.workspace import Capture, Captured, Waker, command, remove_tree

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from coilclaw.traces.environments.programs import ProgramScope
    from coilclaw.workspace import Cancellation, Sandbox, SandboxSupport

LIFETIME_S: Final = 24 * 3600.0
_BEGIN_S: Final = 30.0
_CLOSE_S: Final = 5.0
_READY: Final = "ready"
_DRAIN_S: Final = 2.0
_READ_BYTES: Final = 1 << 16
_SHARED: Final = ("/tmp", "/dev/shm")  # noqa: S108 - of the sandbox's own
_SEGMENTS: Final = " || ".join(
    f"{{ read x && read x; }} </proc/sysvipc/{kind}" for kind in ("shm", "sem", "msg")
)
"""Whether some memory is left that no process and no file holds; without a process of its own."""
_CATCHABLE: Final = "HUP INT QUIT PIPE ALRM TERM USR1 USR2"
"""What a program may send to its whole group; a handler is not inherited by programs."""


@dataclass(frozen=True, slots=True)
class BoxedEnd:
    """How a program in a box ended: ``code`` as a shell tells it, ``None`` if it is unknown."""

    code: int | None
    stdout: Captured
    stderr: Captured
    timed_out: bool = False
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Errand:
    """One program to run, its limits included in ``argv``."""

    argv: Sequence[str]
    cwd: str
    env: Mapping[str, str]
    timeout_s: float
    stdin: bytes = b""
    output_bytes: int = 2**20
    first: bool = False
    """Whether it is the first of its case: then it finds nothing of the last one."""


class Box:
    """A running sandbox; ``apart`` is a directory that its programs can read, and not write."""

    def __init__(
        self,
        apart: Path,
        sandbox: Sandbox,
        env: Mapping[str, str],
        support: SandboxSupport,
        cover: Cover,
    ) -> None:
        self.cover = cover
        self._env = dict(env)
        self._apart = apart
        self._out, self._err, self._in = (str(apart / name) for name in ("out", "err", "in"))
        for name in (self._out, self._err):
            os.mkfifo(name, 0o600)
        # Return what stands directly in the shared places because something below is shown there.
        shown = {os.path.realpath(path) for path in (*sandbox.writable, *sandbox.readable)}
        self._kept = tuple(
            sorted(
                {
                    "/".join(path.split("/")[: place.count("/") + 2])
                    for path in shown
                    for place in _SHARED
                    if path.startswith(f"{place}/")
                }
            )
        )
        self._token = ""
        self._live = command.open(
            ["/bin/sh", "-s"],
            cwd="/",
            timeout_s=LIFETIME_S,
            env=env,
            sandbox=sandbox,
            support=support,
        )
        self._open = True
        self._begin()

    @property
    def usable(self) -> bool:
        """Whether it runs and sent nothing unasked, as after a program tampered with it."""
        return self._open and not self._hears(0.0)

    def run(self, errand: Errand, cancel: Cancellation) -> BoxedEnd:
        """Run a program to its end, and leave nothing of it running."""
        self._token = secrets.token_hex(16)
        out, err = Capture(errand.output_bytes), Capture(errand.output_bytes)
        with ExitStack() as stack:
            streams = {}
            for name, capture in ((self._out, out), (self._err, err)):
                # Opened for each program, so that its end is the end of that program's output.
                fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                stack.callback(os.close, fd)
                streams[fd] = capture
            waker = Waker()
            stack.callback(waker.close)
            stack.callback(cancel.detach, waker)
            cancel.attach(waker)
            deadline = time.monotonic() + errand.timeout_s
            try:
                self._live.stdin.write(self._build_line(errand))
                said = self._attend(streams, waker, deadline)
            except BrokenPipeError:
                said = None
        # Only an answer with the token of this program counts.
        token, _, told = (said or b"").removesuffix(b"\n").partition(b" ")
        is_ours = token == self._token.encode() and told.isdigit()
        code = int(told) & 0xFF if is_ours else None
        late = code is None and time.monotonic() >= deadline
        if code is None:
            self.kill()
        return BoxedEnd(code, out.read_captured(), err.read_captured(), late, cancel.cancelled)

    def close(self) -> None:
        """End it; nothing runs in it between two programs."""
        if self._open:
            self._open = False
            self._live.close(_CLOSE_S)

    def kill(self) -> None:
        """End it with everything that runs in it, at once."""
        if self._open and self._live.result is None:
            with suppress(ProcessLookupError):  # it may just have ended by itself
                os.killpg(self._live.pid, signal.SIGKILL)
        self.close()

    def _begin(self) -> None:
        """Wait until it is up: a sandbox that fails must not be taken for a program that did."""
        try:
            self._live.stdin.write(f"trap : {_CATCHABLE}; echo {_READY}\n".encode())
            ready = self._hears(_BEGIN_S) and os.read(self._live.stdout.fileno(), 64)
        except BrokenPipeError:
            ready = b""
        if ready != f"{_READY}\n".encode():
            self.kill()  # which raises why, if it never came up
            message = "the sandbox that cases share did not come up"
            raise EnvironmentFault(message, rule="environment.box")

    def _hears(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._live.stdout.fileno(), select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def _build_line(self, errand: Errand) -> bytes:
        """Return the shell line that starts it, kills what is left, and reports its exit code."""
        given = "/dev/null"
        if errand.stdin:
            given = self._in
            with open(given, "wb") as file:
                file.write(errand.stdin)
        changed = [
            f"{name}={value}" for name, value in errand.env.items() if value != self._env.get(name)
        ]
        exported = f"export {shlex.join(changed)}; " if changed else ""
        tidy = self._build_tidying() if errand.first else ""
        return (
            f"{tidy}( cd {shlex.quote(errand.cwd)} && {exported}"
            f"exec {shlex.join(errand.argv)} ) <{shlex.quote(given)} "
            f">{shlex.quote(self._out)} 2>{shlex.quote(self._err)}; "
            f"r=$?; kill -s KILL -- -1 2>/dev/null; echo {self._token} $r\n"
        ).encode("utf-8", "surrogateescape")

    def _build_tidying(self) -> str:
        """Take away what another case left in the places that all of them have."""
        kept = "|".join(map(shlex.quote, self._kept)) or "''"
        every = " ".join(f"{place}/{glob}" for place in _SHARED for glob in ("*", ".[!.]*", "..?*"))
        return (
            f'for f in {every}; do case "$f" in {kept}) ;; *) '
            'if [ -e "$f" ] || [ -L "$f" ]; then rm -rf -- "$f" 2>/dev/null || '
            '{ chmod -R u+rwx -- "$f"; rm -rf -- "$f"; }; fi;; esac; done; '
            f"if {_SEGMENTS}; then ipcrm -a; fi; "
        )

    def _attend(self, streams: Mapping[int, Capture], waker: Waker, deadline: float) -> bytes:
        """Collect its output until it has ended; return what the shell reported about it."""
        poll = select.poll()
        status = self._live.stdout.fileno()
        for fd in (*streams, status, waker.fd):
            poll.register(fd, select.POLLIN)
        unfinished, said = set(streams), b""
        while unfinished or not said.endswith(b"\n"):
            left = deadline - time.monotonic()
            events = poll.poll(left * 1000) if left > 0 else []
            if not events or any(fd == waker.fd for fd, _ in events):
                break
            for fd, _ in events:
                data = os.read(fd, _READ_BYTES)
                if fd != status:
                    streams[fd].feed(data)
                said += data if fd == status else b""
                if not data:
                    poll.unregister(fd)
                    unfinished.discard(fd)
                    if fd == status:
                        return b""  # the box is gone
            if said.endswith(b"\n"):
                # All of them are dead: what is in the pipes is all that there will be.
                deadline = min(deadline, time.monotonic() + _DRAIN_S)
        return said


class Slot:
    """The directories that programs of its cases may write; ``apart`` is the judge's own.

    They are the same for all cases and only emptied, because a box shows them for good; what is
    above them no program may write, so that none can put a link in their place.
    """

    def __init__(self, directory: Path, apart: Path) -> None:
        self.case = directory / "case"
        self.temporary = directory / "tmp"
        self.apart = apart
        self._last: ProgramScope | None = None
        self._box: Box | None = None
        self._made_for: tuple[object, ...] = ()
        self._made = 0
        for place in (self.case, self.temporary):
            place.mkdir(mode=0o700, parents=True)

    def box(self, scope: ProgramScope, without: tuple[Path, ...]) -> Box:
        """Return the box without these files; make a new one unless the last one fits."""
        wanted = (without, scope.hidden)
        if self._box is not None and wanted == self._made_for and self._box.usable:
            return self._box
        self.close()
        self._made += 1
        place = self.apart / str(self._made)
        pipes = place / "pipes"
        pipes.mkdir(parents=True)
        plan = containment.confine_program(scope, without, shown=(pipes,))
        cover = Cover(place / "cover", plan.originals)
        env = containment.environ(scope, {})
        self._box = Box(pipes, plan.sandbox(cover), env, scope.support, cover)
        self._made_for = wanted
        return self._box

    def is_first(self, scope: ProgramScope) -> bool:
        """Return whether this is the first program of its case in the box."""
        known, self._last = self._last, scope
        return known is not scope

    def tidy(self) -> None:
        """Take away whatever a case left, so that the next one finds nothing."""
        for place in (self.case, self.temporary):
            os.chmod(place, 0o700)
            for name in os.listdir(place):
                remove_tree(place / name)

    def reset(self) -> None:
        """Take away whatever a case has left so far; for the box another one begins."""
        self._last = None
        self.tidy()

    def close(self) -> None:
        """End the box."""
        if self._box is not None:
            self._box.close()
            self._box.cover.close()
            self._box = None
