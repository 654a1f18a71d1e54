"""``Box``: a sandbox that stays up while programs run in it, one after the other.

Putting a sandbox up takes longer than most small programs do. In a box it is done once: a shell in
it starts each program, with limits and pipes of its own, and kills everything that is left when the
program has ended. A program that takes too long is ended with the whole box.
"""

from __future__ import annotations

import math
import os
import secrets
import select
import shlex
import signal
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.errors import EnvironmentFault
from coilclaw.workspace import process
from coilclaw.workspace.cancel import Waker
from coilclaw.workspace.capture import Capture, Captured

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from coilclaw.environments.containment import Limits
    from coilclaw.environments.covering import Cover
    from coilclaw.workspace.cancel import Cancellation
    from coilclaw.workspace.sandbox import Sandbox, SandboxSupport

LIFETIME_S: Final = 24 * 3600.0
_BEGIN_S: Final = 30.0
_CLOSE_S: Final = 5.0
_READY: Final = "ready"
_DRAIN_S: Final = 2.0
_READ_BYTES: Final = 1 << 16
_BLOCK: Final = 512
_KIBI: Final = 1024
_SHARED: Final = ("/tmp", "/dev/shm")  # noqa: S108 - of the sandbox's own
_SEGMENTS: Final = " || ".join(
    f"{{ read x && read x; }} </proc/sysvipc/{kind}" for kind in ("shm", "sem", "msg")
)
"""Whether some memory is left that no process and no file holds; without a process of its own."""
_CATCHABLE: Final = "HUP INT QUIT PIPE ALRM TERM USR1 USR2"
"""What a program may send to its whole group; a handler is not inherited by programs."""
_LIMITS: Final = (
    "ulimit -c 0; ulimit -t {cpu}; ulimit -d {data}; ulimit -f {file}; "
    "ulimit -p {processes} 2>/dev/null || ulimit -u {processes} 2>/dev/null; "
)


@dataclass(frozen=True, slots=True)
class BoxedEnd:
    """How a program in a box ended: ``code`` as a shell tells it, ``None`` if nobody could tell."""

    code: int | None
    stdout: Captured
    stderr: Captured
    timed_out: bool = False
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Errand:
    """One program to run in a box."""

    argv: Sequence[str]
    cwd: str
    env: Mapping[str, str]
    stdin: bytes
    timeout_s: float
    limits: Limits
    output_bytes: int
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
        self._kept = _first_names(sandbox)
        self._token = ""
        self._live = process.open(
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
        """Whether it runs, and has said nothing unasked: then some program meddled with it."""
        return self._open and not self._hears(0.0)

    def run(self, errand: Errand, cancel: Cancellation) -> BoxedEnd:
        """Run a program to its end, and leave nothing of it running."""
        self._token = secrets.token_hex(16)
        out, err = Capture(errand.output_bytes), Capture(errand.output_bytes)
        with ExitStack() as stack:
            streams = {}
            for name, capture in ((self._out, out), (self._err, err)):
                # Opened anew each time, so that its end is the end of this program's.
                fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                stack.callback(os.close, fd)
                streams[fd] = capture
            waker = Waker()
            stack.callback(waker.close)
            stack.callback(cancel.detach, waker)
            cancel.attach(waker)
            deadline = time.monotonic() + errand.timeout_s
            try:
                self._live.stdin.write(self._line(errand))
                said = self._attend(streams, waker, deadline)
            except BrokenPipeError:
                said = None
        code = self._code(said)
        late = code is None and time.monotonic() >= deadline
        if code is None:
            self.kill()
        return BoxedEnd(code, out.captured(), err.captured(), late, cancel.cancelled)

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
            raise EnvironmentFault(
                "the sandbox that cases share did not come up", rule="environment.box"
            )

    def _hears(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._live.stdout.fileno(), select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def _line(self, errand: Errand) -> bytes:
        """What the shell is told: start it, then kill what is left of it, then say how it ended."""
        given = "/dev/null"
        if errand.stdin:
            given = self._in
            with open(given, "wb") as file:
                file.write(errand.stdin)
        limits = errand.limits
        cpu = math.ceil(errand.timeout_s if limits.cpu_s is None else limits.cpu_s) + 1
        limited = _LIMITS.format(
            cpu=cpu,
            data=limits.memory_bytes // _KIBI,
            file=limits.file_bytes // _BLOCK,
            processes=limits.processes,
        )
        words = [f"{name}={value}" for name, value in errand.env.items()]
        changed = [word for word in words if word.partition("=")[2] != self._env.get(_name(word))]
        exported = f"export {shlex.join(changed)}; " if changed else ""
        tidy = self._tidy() if errand.first else ""
        return (
            f"{tidy}( cd {shlex.quote(errand.cwd)} && {limited}{exported}"
            f"exec {shlex.join(errand.argv)} ) <{shlex.quote(given)} "
            f">{shlex.quote(self._out)} 2>{shlex.quote(self._err)}; "
            f"r=$?; kill -s KILL -- -1 2>/dev/null; echo {self._token} $r\n"
        ).encode("utf-8", "surrogateescape")

    def _tidy(self) -> str:
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
        """Collect what it writes until it has ended; what is returned was said about its end."""
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

    def _code(self, said: bytes | None) -> int | None:
        """The exit code, if the shell told it of this program and of nothing else."""
        token, _, code = (said or b"").removesuffix(b"\n").partition(b" ")
        if token != self._token.encode() or not code.isdigit():
            return None
        return int(code) & 0xFF


def _name(word: str) -> str:
    return word.partition("=")[0]


def _first_names(sandbox: Sandbox) -> tuple[str, ...]:
    """What stands directly in the shared places because something below is shown there."""
    found = set()
    for path in map(os.path.realpath, (*sandbox.writable, *sandbox.readable)):
        for place in _SHARED:
            if path.startswith(f"{place}/"):
                found.add("/".join(path.split("/")[: place.count("/") + 2]))
    return tuple(sorted(found))
