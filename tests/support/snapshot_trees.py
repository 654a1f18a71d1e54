"""Trees of every kind of entry for snapshot tests, and plain git to run in them."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias


@dataclass(frozen=True)
class Link:
    """A symbolic link."""

    target: str


@dataclass(frozen=True)
class Program:
    """An executable file."""

    content: bytes


@dataclass(frozen=True)
class Empty:
    """A directory with nothing in it."""


Content: TypeAlias = bytes | Link | Program | Empty


def build(root: Path, entries: Mapping[str, Content]) -> Path:
    """Put entries into a tree; directories on the way are made."""
    root.mkdir(parents=True, exist_ok=True)
    for name, content in entries.items():
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if isinstance(content, Empty):
            os.makedirs(path, exist_ok=True)
        elif isinstance(content, Link):
            os.symlink(content.target, path)
        else:
            data = content.content if isinstance(content, Program) else content
            with open(path, "wb") as file:
                file.write(data)
            os.chmod(path, 0o755 if isinstance(content, Program) else 0o644)
    return root


def contents(root: Path, *, skip: frozenset[str] = frozenset()) -> dict[str, Content]:
    """Return what stands in a tree, as ``build`` takes it; names in ``skip`` are passed over."""
    found: dict[str, Content] = {}
    for directory, names, files in os.walk(root):
        names[:] = [name for name in names if name not in skip]
        relative = os.path.relpath(directory, root)
        prefix = "" if relative == "." else relative + "/"
        links = [name for name in names if os.path.islink(os.path.join(directory, name))]
        if prefix and not names and not files:
            found[prefix[:-1]] = Empty()
        for name in (*files, *links):
            if name not in skip:
                found[prefix + name] = _content(os.path.join(directory, name))
    return found


def _content(path: str) -> Content:
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        return Link(os.readlink(path))
    with open(path, "rb") as file:
        data = file.read()
    return Program(data) if status.st_mode & stat.S_IXUSR else data


def witness(root: Path) -> dict[str, tuple[object, ...]]:
    """Everything ``lstat`` and reading tell about a tree, but for the times of last access."""
    seen: dict[str, tuple[object, ...]] = {}
    for directory, names, files in os.walk(root):
        for name in (".", *names, *files):
            path = os.path.join(directory, name)
            status = os.lstat(path)
            data = Path(path).read_bytes() if stat.S_ISREG(status.st_mode) else b""
            facts = (status.st_mode, status.st_ino, status.st_nlink, status.st_size)
            seen[path] = (*facts, status.st_mtime_ns, status.st_ctime_ns, data)
    return seen


def git(root: Path, *arguments: str, stdin: bytes | None = None) -> bytes:
    """Run plain git, free of whoever runs the tests, and return what it says."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "Test",
        "GIT_AUTHOR_EMAIL": "test@example.invalid",
        "GIT_COMMITTER_NAME": "Test",
        "GIT_COMMITTER_EMAIL": "test@example.invalid",
    }
    done = subprocess.run(
        ["git", *arguments],
        cwd=root,
        env=environment,
        input=stdin,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout
