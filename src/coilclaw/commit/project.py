"""The project of a code-commit run: its query, its codebase and its keys."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import DeniedError, FileLock, LockTimeout, Secret, UsageError, write_atomic
from coilclaw.policy import KEY_FILES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

    from coilclaw.commit.interrupts import Interrupts


QUERY: Final = "query.txt"
CODEBASE: Final = "codeRollup.txt"
BUILD: Final = "build.sh"
MAX_QUERY_BYTES: Final = 16 * 2**20
MAX_CODEBASE_BYTES: Final = 256 * 2**20
MAX_KEY_BYTES: Final = 16 * 2**10
MIN_KEY_CHARS: Final = 8


@dataclass(frozen=True, slots=True)
class Project:
    """The prepared files of a project."""

    directory: Path
    query: str
    codebase: str


def load_project(directory: Path) -> Project:
    """Return the project's files; raise a ``UsageError`` that names all missing ones."""
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
    """Raise ``UsageError`` if ``.gitignore`` does not keep every key file out of git.

    Each needs a line of its own, and ``ignored`` (git itself) must confirm it.
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
            f".gitignore names {', '.join(open_)}, but a later line overrides that",
            rule="project.gitignore",
            hint="'git check-ignore -v --no-index NAME' shows which line decides",
        )


def missing_lines(directory: Path, key_files: tuple[str, ...]) -> list[str]:
    """Return the required lines that ``.gitignore`` does not have."""
    try:
        text = _text(directory / ".gitignore", MAX_QUERY_BYTES)
    except FileNotFoundError:
        text = ""
    lines = {line.rstrip(" \t\r") for line in text.split("\n")}
    return [f"/{name}" for name in key_files if f"/{name}" not in lines]


def read_key(directory: Path, name: str) -> Secret:
    """Return the key in a file; raise ``UsageError`` if it is missing or unusable."""
    found = _key(directory / name)
    if found is None:
        raise UsageError(f"the key file {directory / name} does not exist", rule="project.key")
    if not found:
        raise UsageError(f"the key file {directory / name} is empty", rule="project.key")
    if name in KEY_FILES and not _secret(found):
        raise UsageError(
            f"the key file {directory / name} holds fewer than {MIN_KEY_CHARS} characters",
            rule="project.key",
        )
    return found


def read_keys(directory: Path, names: tuple[str, ...]) -> tuple[Secret, ...]:
    """Return every key in the project, used or not, so that all can be redacted.

    A short word such as ``none``, for local endpoints, does not count as a secret.
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
        raise UsageError(f"the key file {path} is not valid UTF-8", rule="project.key") from None
    if len(raw) > MAX_KEY_BYTES or any(char.isspace() for char in text):
        message = f"the key file {path} must hold one key of at most {MAX_KEY_BYTES} bytes"
        raise UsageError(message, rule="project.key")
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


LOCK: Final = "code-commit.lock"
HOLDER: Final = "code-commit.json"
_LOOK_S: Final = 0.5
"""Seconds to wait for the lock between two checks for signals."""


@contextmanager
def take_turn(
    directory: Path, interrupts: Interrupts, tell: Callable[[str, str], None], *, wait: bool
) -> Iterator[None]:
    """Lock the project for a run; wait for another run, or raise ``DeniedError`` if not."""
    lock = FileLock(directory / LOCK, timeout_s=0)
    try:
        lock.acquire()
    except LockTimeout as problem:
        holder = _holder(directory)
        if not wait:
            raise DeniedError(
                f"another code-commit works in this project: {holder}",
                rule="commit.busy",
                hint="wait until it ends, or leave out --no-wait",
            ) from problem
        tell(f"waiting for another code-commit in this project: {holder}", "yellow")
        lock.timeout_s = _LOOK_S
        while not lock.held:
            interrupts.check()
            with suppress(LockTimeout):
                lock.acquire()
    try:
        now = datetime.now().astimezone().isoformat("T", "seconds")
        record = {"pid": os.getpid(), "since": now}
        write_atomic(directory / HOLDER, json.dumps(record).encode("ascii"), sync=False)
        yield
    finally:
        lock.release()


def _holder(directory: Path) -> str:
    """Return a description of the process that holds the project, as it recorded itself."""
    try:
        record = json.loads((directory / HOLDER).read_bytes())
        return f"process {int(record['pid'])}, since {str(record['since'])[:40]}"
    except (OSError, ValueError, KeyError, TypeError):
        return "a process that has just started"


BUILD_SAMPLE: Final = """\
#!/bin/sh
# Builds and tests the project. Exit code 0 is a pass, whatever is on stderr.
set -eu

echo "Write your build and tests into build.sh."
exit 1
"""
QUERY_SAMPLE: Final = "Describe here what the model should change.\n"


def set_up(directory: Path) -> list[str]:
    """Create the missing files and return a description of each."""
    done: list[str] = []
    ignore = directory / ".gitignore"
    old = ignore.read_bytes() if ignore.exists() else b""
    wanted = missing_lines(directory, KEY_FILES)
    if "/logs/" not in old.decode(errors="replace").splitlines():
        wanted.append("/logs/")
    if wanted:
        gap = b"" if not old or old.endswith(b"\n") else b"\n"
        with ignore.open("ab") as file:
            file.write(gap + "".join(f"{line}\n" for line in wanted).encode())
        done.append(f".gitignore: {', '.join(wanted)}")
    for name, text, mode in ((BUILD, BUILD_SAMPLE, 0o755), (QUERY, QUERY_SAMPLE, 0o644)):
        path = directory / name
        if not os.path.lexists(path):
            path.write_text(text)
            path.chmod(mode)
            done.append(name)
    return done
