"""Which environments there are, and what each consists of: file, task, workspace, version."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from coilclaw.kernel import UsageError, explain_os_errors, quote_text
from coilclaw.traces.environments.declarations import MAX_NAME

MAIN: Final = "main.py"
TASK: Final = "task.md"
WORKSPACE: Final = "workspace"
MAX_TASK_BYTES: Final = 2**20
MAX_FILES: Final = 20_000
MAX_BYTES: Final = 256 * 2**20
"""Bounds of what an environment consists of; fixtures that are larger live elsewhere."""

_MADE: Final = frozenset({"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"})


@dataclass(frozen=True, slots=True)
class EnvironmentPlace:
    """An environment as it is on disk."""

    name: str
    file: Path
    task: str
    """The prompt that every agent gets; empty where there is no ``task.md``."""
    workspace: Path | None
    """The files that a run starts from."""
    version: str
    """SHA-256 over every file of it."""

    @property
    def directory(self) -> Path:
        return self.file.parent


def shipped_directory() -> Path:
    """Return the directory of the environments that ship with CoilClaw."""
    return Path(__file__).parent / "shipped"


def names() -> tuple[str, ...]:
    """Return the names of the shipped environments."""
    try:
        entries = sorted(shipped_directory().iterdir())
    except FileNotFoundError:
        return ()
    return tuple(entry.name for entry in entries if (entry / MAIN).is_file())


def list_environments() -> tuple[EnvironmentPlace, ...]:
    """Return the shipped environments."""
    return tuple(_read_place(shipped_directory() / name / MAIN) for name in names())


def find_environment(name_or_path: str) -> EnvironmentPlace:
    """Find an environment by its name, its directory or its file."""
    if not name_or_path or "\0" in name_or_path:
        raise UsageError("no environment is named", rule="environment.unknown")
    if "/" not in name_or_path and name_or_path in names():
        return _read_place(shipped_directory() / name_or_path / MAIN)
    path = Path(name_or_path)
    file = path / MAIN if path.is_dir() else path
    if not file.is_file():
        message = f"the environment {quote_text(name_or_path[:MAX_NAME])} does not exist"
        hint = f"give a file, or one of {', '.join(names()) or '(none)'}"
        raise UsageError(message, rule="environment.unknown", hint=hint)
    return _read_place(file)


def _read_place(file: Path) -> EnvironmentPlace:
    real = Path(os.path.realpath(file))
    whole = real.name == MAIN
    directory = real.parent
    workspace = directory / WORKSPACE
    return EnvironmentPlace(
        name=directory.name if whole else real.stem,
        file=real,
        task=_read_task(directory / TASK) if whole else "",
        workspace=workspace if whole and workspace.is_dir() else None,
        version=_hash_files(directory, _list_files(directory) if whole else [real.name]),
    )


def _read_task(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_TASK_BYTES + 1)
    except FileNotFoundError:
        return ""
    if len(data) > MAX_TASK_BYTES:
        raise _refuse_size(f"{path} is larger than {MAX_TASK_BYTES} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise UsageError(f"{path} is not UTF-8", rule="environment.task") from problem


def _hash_files(directory: Path, files: list[str]) -> str:
    """Hash names, modes and contents, so that any change of the environment is another version."""
    whole = hashlib.sha256(b"coilclaw environment 1\0")
    size = 0
    for name in files:
        path = directory / name
        with explain_os_errors(f"read the environment {directory}", rule="environment.unreadable"):
            data = os.fsencode(os.readlink(path)) if path.is_symlink() else path.read_bytes()
            mode = os.lstat(path).st_mode & 0o170111
        size += len(data)
        if size > MAX_BYTES:
            raise _refuse_size(f"the environment {directory} is larger than {MAX_BYTES} bytes")
        whole.update(os.fsencode(name) + b"\0%o\0" % mode + hashlib.sha256(data).digest())
    return whole.hexdigest()


def _list_files(directory: Path) -> list[str]:
    found: list[str] = []
    for folder, folders, files in os.walk(directory):
        linked = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        folders[:] = [name for name in folders if name not in _MADE and name not in linked]
        found += (
            os.path.relpath(os.path.join(folder, name), directory)
            for name in (*files, *linked)
            if not name.endswith((".pyc", ".pyo"))
        )
    if len(found) > MAX_FILES:
        raise _refuse_size(f"the environment {directory} has more than {MAX_FILES} files")
    return sorted(found)


def _refuse_size(message: str) -> UsageError:
    return UsageError(message, rule="environment.bounds")
