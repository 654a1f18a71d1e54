"""The project that code-commit runs in: its query, its codebase, its keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.domain.secret import Secret
from coilclaw.errors import UsageError
from coilclaw.security.protected import KEY_FILES

if TYPE_CHECKING:
    from pathlib import Path

QUERY: Final = "query.txt"
CODEBASE: Final = "codeRollup.txt"
BUILD: Final = "build.sh"
MAX_QUERY_BYTES: Final = 16 * 2**20
MAX_CODEBASE_BYTES: Final = 256 * 2**20
MAX_KEY_BYTES: Final = 16 * 2**10


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
    return Project(
        directory,
        _text(directory / QUERY, MAX_QUERY_BYTES),
        _text(directory / CODEBASE, MAX_CODEBASE_BYTES),
    )


def check_ignored(directory: Path, key_files: tuple[str, ...] = KEY_FILES) -> None:
    """Refuse a project whose ``.gitignore`` has no line for every key file."""
    missing = missing_lines(directory, key_files)
    if missing:
        raise UsageError(
            f".gitignore has no line for {', '.join(missing)}",
            rule="project.gitignore",
            hint="'coilclaw commit init' adds them, so that no key is ever committed",
        )


def missing_lines(directory: Path, key_files: tuple[str, ...]) -> list[str]:
    """Return the lines that ``.gitignore`` should have and has not."""
    try:
        text = _text(directory / ".gitignore", MAX_QUERY_BYTES)
    except FileNotFoundError:
        text = ""
    lines = {line.strip() for line in text.splitlines()}
    return [f"/{name}" for name in key_files if f"/{name}" not in lines]


def key(directory: Path, name: str) -> Secret:
    """Read the key that a request needs."""
    found = _key(directory / name)
    if found is None:
        raise UsageError(f"there is no key file {directory / name}", rule="project.key")
    if not found:
        raise UsageError(f"the key file {directory / name} is empty", rule="project.key")
    return found


def keys(directory: Path, names: tuple[str, ...]) -> tuple[Secret, ...]:
    """Return every key that lies in the project, used or not, so that none gets out."""
    found = (_key(directory / name) for name in names)
    return tuple(secret for secret in found if secret)


def _key(path: Path) -> Secret | None:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_KEY_BYTES + 1)
        text = raw.decode("utf-8").strip()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise UsageError(f"the key file {path} is no text", rule="project.key") from None
    if len(raw) > MAX_KEY_BYTES or any(char.isspace() for char in text):
        raise UsageError(f"the key file {path} holds more than one key", rule="project.key")
    return Secret(text)


def _text(path: Path, bound: int) -> str:
    with path.open("rb") as file:
        raw = file.read(bound + 1)
    if len(raw) > bound:
        raise UsageError(f"{path} is larger than {bound:,} bytes", rule="project.bounds")
    return raw.decode("utf-8", errors="replace")
