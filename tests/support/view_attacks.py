"""A machine with things that no child may see, allowed neighbours, and a program that tries."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from coilclaw.workspace.process.sandbox_view import SandboxView

SECRET = "canary-of-another-project"
NAME, MAIL = "Ann Example", "ann@example.org"
PIP = "[global]\nindex-url = https://mirror.example.org/simple"
INTERPRETER = Path(os.path.realpath(sys.executable))

PROGRAM = """
import json, os, socket, subprocess, sys
def read(path):
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError as problem:
        return type(problem).__name__
def names(path):
    try:
        return sorted(os.listdir(path))
    except OSError as problem:
        return type(problem).__name__
def reach(address):
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.settimeout(10)
            one.connect(address)
        return "reached"
    except OSError as problem:
        return type(problem).__name__
def run(*argv):
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=60).stdout.strip()
    except OSError as problem:
        return type(problem).__name__
asked = json.loads(sys.argv[1])
print("FOUND " + json.dumps({
    "files": {path: read(path) for path in asked["files"]},
    "folders": {path: names(path) for path in asked["folders"]},
    "sockets": {name: reach(name.replace("@", chr(0))) for name in asked["sockets"]},
    "tool": run("mine"),
    "git": [run("git", "config", "user.name"), run("git", "config", "user.email")],
    "home": os.environ.get("HOME"),
    "pip": read(os.path.expanduser("~/.config/pip/pip.conf")),
}), flush=True)
"""


@dataclass(frozen=True)
class Machine:
    """A user's home with a toolchain and secrets in it, and what lies elsewhere."""

    base: Path
    secret_files: tuple[Path, ...]
    path_sockets: tuple[str, ...]
    abstract_socket: str

    @property
    def user(self) -> Path:
        return self.base / "user"

    @property
    def named(self) -> Path:
        return self.user / "named"

    @property
    def view(self) -> SandboxView:
        return SandboxView(read=(self.named,))

    @property
    def environ(self) -> dict[str, str]:
        shims = self.user / ".pyenv" / "shims"
        return {"PATH": f"{shims}:{INTERPRETER.parent}:/usr/bin:/bin", "HOME": str(self.user)}

    def argv(self, *more: Path) -> list[str]:
        """What a child runs: it tries everything, and says what it got."""
        asked = {
            "files": [str(path) for path in (*self.secret_files, self.named / "data", *more)],
            "folders": ["/mnt", "/media", "/srv", "/home", str(self.user / "other")],
            "sockets": [*self.path_sockets, self.abstract_socket],
        }
        return [str(INTERPRETER), "-I", "-S", "-c", PROGRAM, json.dumps(asked)]

    def check(self, output: str, *, kind: str, mine: Path, sockets: bool = True) -> None:
        """Compare what a child got with what it may see; ``mine`` is of its own work."""
        (line,) = [one for one in output.splitlines() if one.startswith("FOUND ")]
        found = json.loads(line.removeprefix("FOUND "))
        got = found["files"]
        assert {got[str(path)] for path in self.secret_files} <= {
            "FileNotFoundError",
            "PermissionError",
        }, got
        # What is allowed beside it: its own work, and what the user named.
        assert (got[str(mine)], got[str(self.named / "data")]) == ("mine", "named")
        closed = {"FileNotFoundError", "PermissionError"}
        for path, listed in found["folders"].items():
            own = isinstance(listed, list) and all(
                any(str(shown).startswith(f"{path}/{name}") for shown in (mine, self.base))
                for name in listed
            )
            assert own or listed in closed, (path, listed)
        if sockets:
            reached = found["sockets"]
            assert reached[self.abstract_socket] != "reached", reached
            if kind == "bubblewrap":  # Landlock has no say over sockets in the file system
                assert "reached" not in reached.values(), reached
        assert found["tool"] == "a tool of the user"
        assert found["git"] == [NAME, MAIL]
        assert found["home"] != str(self.user)
        assert found["pip"] == PIP


@contextmanager
def machine(base: Path) -> Iterator[Machine]:
    """Set everything up, with servers that listen on sockets."""
    user = base / "user"
    for path, text in (
        (user / ".aws/credentials", SECRET),
        (user / ".netrc", SECRET),
        (user / ".npmrc", f"//registry.example.org/:_authToken={SECRET}\n"),
        (user / ".cargo/credentials.toml", SECRET),
        (user / "other/secret", SECRET),
        (base / "fixtures/expected", SECRET),
        (user / "named/data", "named"),
        (user / ".pyenv/libexec/word", "a tool of the user"),
        (
            user / ".gitconfig",
            f"[user]\n name = {NAME}\n email = {MAIL}\n[credential]\n helper = !echo {SECRET}\n",
        ),
        (
            user / ".config/pip/pip.conf",
            f"{PIP}\nextra-index-url = https://ann:{SECRET}@private.example.org/simple\n",
        ),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    shim = user / ".pyenv/shims/mine"
    shim.parent.mkdir()
    shim.write_text('#!/bin/sh\ncat "${0%/*}/../libexec/word"\n')
    shim.chmod(0o755)
    for folder in (base, user):
        folder.chmod(0o755)
    with ExitStack() as stack:
        away = [_away(stack, "/var/tmp"), _away(stack, "/tmp")]
        run = [place for place in ("/run", os.environ.get("XDG_RUNTIME_DIR")) if place]
        away += [_away(stack, place) for place in run[:1] if os.access(place, os.W_OK)]
        for folder in away:
            (folder / "x").write_text(SECRET)
        listening = [str(folder / "s") for folder in away]
        abstract = f"@coilclaw-{secrets.token_hex(8)}"
        for address in (*listening, abstract):
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            server.bind(address.replace("@", "\0"))
            server.listen(64)
        files = (
            *(user / name for name in (".aws/credentials", ".netrc", ".npmrc", "other/secret")),
            *(user / name for name in (".cargo/credentials.toml", ".gitconfig")),
            base / "fixtures/expected",
            *(folder / "x" for folder in away),
        )
        yield Machine(base, files, tuple(listening), abstract)


def _away(stack: ExitStack, place: str) -> Path:
    made = Path(tempfile.mkdtemp(prefix="coilclaw-", dir=place))
    stack.callback(shutil.rmtree, made)
    made.chmod(0o755)
    return made
