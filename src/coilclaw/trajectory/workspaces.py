"""The agent's workspace: made from what the environment gives, with a repository for the agent.

Once an agent was let in, no git of ours runs in there: what its repository says is read as files.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from typing import TYPE_CHECKING, Final

from coilclaw.errors import EnvironmentFault
from coilclaw.workspace import process
from coilclaw.workspace.environment import search_path

if TYPE_CHECKING:
    from pathlib import Path

AGENT: Final = ("Agent", "agent@coilclaw.invalid")
GIT_TIMEOUT_S: Final = 600.0
MAX_POINTER_BYTES: Final = 4096
MAX_PACKED_REFS_BYTES: Final = 2**22
_COMMIT: Final = re.compile(rb"[0-9a-f]{40}")
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def prepare(workspace: Path, template: Path | None) -> None:
    """Make a workspace with the files of a template and a repository with one commit."""
    try:
        if template is None:
            workspace.mkdir(parents=True)
        else:
            shutil.copytree(template, workspace, symlinks=True)
    except (OSError, shutil.Error) as problem:
        raise EnvironmentFault(
            f"cannot make the workspace {workspace}: {problem}", rule="trajectory.workspace"
        ) from problem
    name, email = AGENT
    who = ("-c", f"user.name={name}", "-c", f"user.email={email}")
    _git(workspace, "init", "-q", "-b", "main")
    _git(workspace, "config", "user.name", name)
    _git(workspace, "config", "user.email", email)
    _git(workspace, "add", "-A")
    _git(workspace, *who, "commit", "-q", "--allow-empty", "-m", "The workspace as it was given")


def agent_head(workspace: Path) -> str | None:
    """The commit that the agent's own repository stands at; ``None`` where it cannot be told."""
    try:
        directory = os.open(workspace / ".git", _DIRECTORY)
    except OSError:
        return None
    try:
        line = _read(directory, b"HEAD", MAX_POINTER_BYTES).strip()
        if line.startswith(b"ref: refs/"):
            line = _ref(directory, line[len(b"ref: ") :])
        return line.decode("ascii") if _COMMIT.fullmatch(line) else None
    except OSError:
        return None
    finally:
        os.close(directory)


def _ref(directory: int, name: bytes) -> bytes:
    if b".." in name.split(b"/") or b"\0" in name:
        return b""
    try:
        return _read(directory, name, MAX_POINTER_BYTES).strip()
    except FileNotFoundError:
        pass
    for row in _read(directory, b"packed-refs", MAX_PACKED_REFS_BYTES).splitlines():
        commit, _, ref = row.partition(b" ")
        if ref == name:
            return commit
    return b""


def _read(directory: int, name: bytes, limit: int) -> bytes:
    """Read a file below an open directory; no link is followed on the way."""
    *above, leaf = name.split(b"/")
    held = [os.dup(directory)]
    try:
        for part in above:
            held.append(os.open(part, _DIRECTORY, dir_fd=held[-1]))
        descriptor = os.open(leaf, _FILE, dir_fd=held[-1])
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise FileNotFoundError(name)
            return file.read(limit)
    finally:
        for one in held:
            os.close(one)


def _git(workspace: Path, *arguments: str) -> None:
    """Run git in a workspace that no agent has seen yet."""
    result = process.run(
        ("git", "--no-pager", *arguments),
        cwd=workspace,
        timeout_s=GIT_TIMEOUT_S,
        env={
            "PATH": search_path(),
            "LC_ALL": "C",
            "HOME": "/nonexistent",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_TEMPLATE_DIR": "",
            "GIT_TERMINAL_PROMPT": "0",
        },
    )
    if result.exit_code != 0:
        said = result.stderr.text().strip()[:500]
        raise EnvironmentFault(
            f"git {arguments[0]} in {workspace} failed: {said}", rule="trajectory.workspace"
        )
