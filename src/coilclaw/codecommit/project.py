"""The project that code-commit runs in: its query, its codebase, its keys."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.domain.secret import Secret
from coilclaw.errors import UsageError
from coilclaw.security.protected import KEY_FILES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

QUERY: Final = "query.txt"
CODEBASE: Final = "codeRollup.txt"
BUILD: Final = "build.sh"
MAX_QUERY_BYTES: Final = 16 * 2**20
MAX_CODEBASE_BYTES: Final = 256 * 2**20
MAX_KEY_BYTES: Final = 16 * 2**10
MIN_KEY_CHARS: Final = 8


@dataclass(frozen=True, slots=True)
class Project:
    """What the supervisor prepared."""

    directory: Path
    query: str
    codebase: str


def load(directory: Path) -> Project:
    """Read the project's files; everything that is missing is said at once."""
    missing = [name for name in (QUERY, CODEBASE, BUILD) if not (directory / name).is_file()]
    if missing:
        raise UsageError(
            f"missing in {directory}: {', '.join(missing)}",
            rule="project.missing",
            hint="'coilclaw commit init' sets a project up; '--rollup' makes codeRollup.txt",
        )
    if not os.access(directory / BUILD, os.X_OK):
        raise UsageError(
            f"{directory / BUILD} cannot be executed",
            rule="project.build",
            hint=f"chmod +x {BUILD}",
        )
    query = _text(directory / QUERY, MAX_QUERY_BYTES, errors="strict")
    if not query.strip():
        raise UsageError(f"{directory / QUERY} is empty", rule="project.query")
    codebase = _text(directory / CODEBASE, MAX_CODEBASE_BYTES, errors="strict")
    return Project(directory, query, codebase)


def check_ignored(
    directory: Path,
    key_files: tuple[str, ...],
    ignored: Callable[[Sequence[str]], Collection[str]],
) -> None:
    """Refuse a project whose ``.gitignore`` does not keep every key file out of git.

    Each has a line of its own, and ``ignored`` (git itself) agrees that it is ignored.
    """
    missing = missing_lines(directory, key_files)
    if missing:
        known = all(line.removeprefix("/") in KEY_FILES for line in missing)
        raise UsageError(
            f".gitignore has no line for {', '.join(missing)}",
            rule="project.gitignore",
            hint="'coilclaw commit init' adds them" if known else "add the lines to .gitignore",
        )
    kept = ignored(key_files)
    open_ = [name for name in key_files if name not in kept]
    if open_:
        raise UsageError(
            f".gitignore names {', '.join(open_)}, but a later line takes that back",
            rule="project.gitignore",
            hint="'git check-ignore -v --no-index NAME' shows which line decides",
        )


def missing_lines(directory: Path, key_files: tuple[str, ...]) -> list[str]:
    """Return the lines that ``.gitignore`` should have and has not."""
    try:
        text = _text(directory / ".gitignore", MAX_QUERY_BYTES)
    except FileNotFoundError:
        text = ""
    lines = {line.rstrip(" \t\r") for line in text.split("\n")}
    return [f"/{name}" for name in key_files if f"/{name}" not in lines]


def key(directory: Path, name: str) -> Secret:
    """Read the key that a request needs."""
    found = _key(directory / name)
    if found is None:
        raise UsageError(f"there is no key file {directory / name}", rule="project.key")
    if not found:
        raise UsageError(f"the key file {directory / name} is empty", rule="project.key")
    if name in KEY_FILES and not _secret(found):
        raise UsageError(
            f"the key file {directory / name} holds less than {MIN_KEY_CHARS} characters",
            rule="project.key",
        )
    return found


def keys(directory: Path, names: tuple[str, ...]) -> tuple[Secret, ...]:
    """Return every key that lies in the project, used or not, so that none gets out.

    A word such as ``none``, which local endpoints are given, is no secret.
    """
    found = (_key(directory / name) for name in names)
    return tuple(secret for secret in found if secret is not None and _secret(secret))


def _secret(key: Secret) -> bool:
    return len(key.reveal()) >= MIN_KEY_CHARS


def _key(path: Path) -> Secret | None:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_KEY_BYTES + 1)
        text = raw.decode("utf-8-sig").strip()
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        raise UsageError(f"the key file {path} is a directory", rule="project.key") from None
    except UnicodeDecodeError:
        raise UsageError(f"the key file {path} is no text", rule="project.key") from None
    if len(raw) > MAX_KEY_BYTES or any(char.isspace() for char in text):
        raise UsageError(f"the key file {path} holds more than one key", rule="project.key")
    return Secret(text)


def _text(path: Path, bound: int, errors: str = "replace") -> str:
    with path.open("rb") as file:
        raw = file.read(bound + 1)
    if len(raw) > bound:
        raise UsageError(f"{path} is larger than {bound:,} bytes", rule="project.bounds")
    try:
        text = raw.decode("utf-8", errors)
    except UnicodeDecodeError as problem:
        line = 1 + raw.count(b"\n", 0, problem.start)
        raise UsageError(f"{path}: line {line} is not UTF-8", rule="project.encoding") from problem
    if errors == "strict" and (place := text.find("\0")) >= 0:
        line = 1 + text.count("\n", 0, place)
        raise UsageError(f"{path}: line {line} holds a NUL", rule="project.encoding")
    return text
