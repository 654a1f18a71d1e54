"""A trial of the sandbox: a confined child tries to escape, and reports what succeeded."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import sys
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import ProcessFault
from coilclaw.workspace.process import command, environment
from coilclaw.workspace.process.confinement import SYSTEM_PATHS, Sandbox

if TYPE_CHECKING:
    from coilclaw.workspace.process.confinement import Kind, SandboxSupport

TRIAL_TIMEOUT_S: Final = 60.0
_MARK: Final = "COILCLAW_TRIAL"

_ATTEMPTS: Final = {
    "read": "read a file outside",
    "list": "list a directory outside",
    "write": "write a file outside",
    "unix": "connect to a Unix socket outside",
    "abstract": "connect to an abstract Unix socket",
    "tcp": "connect to this machine",
    "environ": "read the environment of another process",
    "owner": "change the owner of a file outside",
    "xattr": "change extended attributes of a file outside",
    "mode": "change the mode of a file outside",
    "times": "change the times of a file outside",
}

_NOT_HELD: Final = {"landlock": frozenset({_ATTEMPTS["mode"], _ATTEMPTS["times"]})}

_CHILD: Final = """
import json, os, socket, sys
outside, abstract, port, mark, got = *sys.argv[1:], []
path = lambda name: os.path.join(outside, name)
def connect(family, address):
    with socket.socket(family) as end:
        end.settimeout(10)
        end.connect(address)
def environ():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if mark.encode() in file.read():
                    return
        except OSError:
            continue
    raise OSError("not seen")
attempts = {
    "read": lambda: open(path("secret")).read(),
    "list": lambda: os.listdir(outside),
    "write": lambda: open(path("written"), "w").close(),
    "unix": lambda: connect(socket.AF_UNIX, path("socket")),
    "abstract": lambda: connect(socket.AF_UNIX, chr(0) + abstract),
    "tcp": lambda: connect(socket.AF_INET, ("127.0.0.1", int(port))),
    "environ": environ,
    "owner": lambda: os.chown(path("secret"), os.getuid(), os.getgid()),
    "xattr": lambda: os.setxattr(path("secret"), "user.trial", b"1"),
    "mode": lambda: os.chmod(path("secret"), 0o600),
    "times": lambda: os.utime(path("secret")),
}
for name, attempt in attempts.items():
    try:
        attempt()
        got.append(name)
    except OSError:
        pass
with open("inside", "w") as file:
    file.write("ok")
print(json.dumps(got))
"""


@dataclass(frozen=True, slots=True)
class TrialReport:
    """How often the child tried, and descriptions of what succeeded."""

    kind: Kind
    attempts: int
    escaped: tuple[str, ...]

    @property
    def as_promised(self) -> bool:
        """Whether nothing succeeded but what this kind of sandbox is known not to stop."""
        return set(self.escaped) <= _NOT_HELD.get(self.kind, frozenset())


def try_to_escape(kind: Kind, support: SandboxSupport) -> TrialReport:
    """Let a child try to escape; raise ``ProcessFault`` if it could not run."""
    with ExitStack() as stack:
        # Short, so that a socket's name fits, and no sandbox shows it.
        place = Path(tempfile.mkdtemp(prefix="coilclaw-trial-", dir="/var/tmp"))
        stack.callback(shutil.rmtree, place, ignore_errors=True)
        inside, outside = place / "inside", place / "outside"
        inside.mkdir()
        outside.mkdir()
        (outside / "secret").write_text("secret")
        token = secrets.token_hex(16)
        _listen(stack, socket.AF_UNIX, str(outside / "socket"))
        _listen(stack, socket.AF_UNIX, f"\0{token}")
        port = _listen(stack, socket.AF_INET, ("127.0.0.1", 0)).getsockname()[1]
        neighbour = command.open(
            ["sleep", str(int(TRIAL_TIMEOUT_S))],
            cwd="/",
            timeout_s=TRIAL_TIMEOUT_S,
            env={**environment.minimal(), _MARK: token},
        )
        stack.enter_context(neighbour)
        python = os.path.realpath(sys.executable)
        box = Sandbox(kind, writable=(inside,), readable=SYSTEM_PATHS, required=True)
        done = command.run(
            [python, "-I", "-S", "-c", _CHILD, str(outside), token, str(port), token],
            cwd=inside,
            timeout_s=TRIAL_TIMEOUT_S,
            sandbox=box.showing(python),
            support=support,
        )
        names = None
        with suppress(ValueError):
            names = json.loads(done.stdout.text())
        if not isinstance(names, list) or not (inside / "inside").exists():
            problem = done.stderr.text().strip() or "it gave no reason"
            raise ProcessFault(
                f"The trial of the sandbox did not run: {problem}", rule="sandbox.trial"
            )
        return TrialReport(kind, len(_ATTEMPTS), tuple(_ATTEMPTS[str(name)] for name in names))


def _listen(stack: ExitStack, family: int, address: object) -> socket.socket:
    server = stack.enter_context(socket.socket(family))
    server.bind(address)  # type: ignore[arg-type]  # a path, or a host and a port
    server.listen()
    return server
