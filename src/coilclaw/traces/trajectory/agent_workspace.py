"""The agent's workspace: made from what the environment gives, with a repository for the agent.

Once an agent was let in, no git of ours runs in there: what its repository says is read as files.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from dataclasses import dataclass, field
from fnmatch import translate
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import EnvironmentFault, UsageError, quote_text
from coilclaw.workspace import command, search_path

if TYPE_CHECKING:
    from pathlib import Path


MAX_PATTERNS: Final = 1000
MAX_PATTERN: Final = 500


def read_patterns(text: str) -> tuple[str, ...]:
    """Read the patterns of a file; comments and blank lines are none."""
    lines = (line.rstrip() for line in text.splitlines())
    found = tuple(line for line in lines if line and not line.startswith("#"))
    if len(found) > MAX_PATTERNS:
        raise UsageError(
            f"{len(found)} patterns are more than the {MAX_PATTERNS} that an ignore list may have",
            rule="trajectory.ignore",
        )
    return found


@dataclass(frozen=True, slots=True)
class Ignored:
    """Says of a path whether it is left out; those above it were asked about before."""

    patterns: tuple[str, ...] = ()
    _names: re.Pattern[str] | None = field(init=False, repr=False, compare=False)
    _paths: re.Pattern[str] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names, paths = [], []
        for pattern in self.patterns:
            if len(pattern) > MAX_PATTERN or pattern.startswith("!") or ".." in pattern.split("/"):
                message = f"{quote_text(pattern)} cannot be a pattern of an ignore list"
                hint = "exceptions and '..' are not known here"
                raise UsageError(message, rule="trajectory.ignore", hint=hint)
            plain = pattern.rstrip("/")
            if "/" in plain:
                paths.append(translate(plain.removeprefix("/")))
            elif plain:
                names.append(translate(plain))
        object.__setattr__(self, "_names", re.compile("|".join(names)) if names else None)
        object.__setattr__(self, "_paths", re.compile("|".join(paths)) if paths else None)

    def __call__(self, path: str) -> bool:
        if self._names is not None and self._names.match(path.rpartition("/")[2]):
            return True
        return self._paths is not None and self._paths.match(path) is not None

    def covers(self, path: str) -> bool:
        """The same for a path whose parents were not asked about."""
        parts = path.split("/")
        return any(self("/".join(parts[: depth + 1])) for depth in range(len(parts)))


AGENT: Final = ("Agent", "agent@coilclaw.invalid")
GIT_TIMEOUT_S: Final = 600.0
MAX_POINTER_BYTES: Final = 4096
MAX_PACKED_REFS_BYTES: Final = 2**22
_COMMIT: Final = re.compile(rb"[0-9a-f]{40}")
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def prepare_workspace(workspace: Path, template: Path | None) -> None:
    """Make a workspace with the files of a template and a repository with one commit."""
    try:
        if template is None:
            workspace.mkdir(parents=True)
        else:
            shutil.copytree(template, workspace, symlinks=True)
    except OSError as problem:
        message = f"cannot make the workspace {workspace}: {problem}"
        raise EnvironmentFault(message, rule="trajectory.workspace") from problem
    name, email = AGENT
    who = ("-c", f"user.name={name}", "-c", f"user.email={email}")
    _git(workspace, "init", "-q", "-b", "main")
    _git(workspace, "config", "user.name", name)
    _git(workspace, "config", "user.email", email)
    _git(workspace, "add", "-A")
    _git(workspace, *who, "commit", "-q", "--allow-empty", "-m", "The workspace as it was given")


def agent_head(workspace: Path) -> str | None:
    """Return the HEAD of the agent's own repository, or ``None`` if it is unreadable."""
    try:
        directory = os.open(workspace / ".git", _DIRECTORY)
    except OSError:
        return None
    try:
        line = _read(directory, b"HEAD", MAX_POINTER_BYTES).strip()
        if line.startswith(b"ref: refs/"):
            line = _read_ref(directory, line[len(b"ref: ") :])
        return line.decode("ascii") if _COMMIT.fullmatch(line) else None
    except OSError:
        return None
    finally:
        os.close(directory)


def _read_ref(directory: int, name: bytes) -> bytes:
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
    result = command.run(
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
        message = f"git {arguments[0]} in {workspace} failed: {said}"
        raise EnvironmentFault(message, rule="trajectory.workspace")
