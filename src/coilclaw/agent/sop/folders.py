"""Find SOPs: ``NAME/SOP.toml`` in the home, then in the workspace."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.agent.sop.document import MAX_BYTES, NAME
from coilclaw.kernel import UsageError, suggest

if TYPE_CHECKING:
    from pathlib import Path

FILE_NAME: Final = "SOP.toml"
MAX_SOPS: Final = 1000


@dataclass(frozen=True, slots=True)
class FoundSop:
    """The file of a SOP; ``other`` is a second file with the same name, which is an error."""

    name: str
    path: Path
    other: Path | None = None

    def read(self) -> bytes:
        """Return its bytes; raise ``UsageError`` if it is unreadable or ambiguous."""
        if self.other is not None:
            raise UsageError(
                f"the SOP {self.name} exists twice: {self.path} and {self.other}",
                rule="sop.ambiguous",
                hint="rename or remove one of them",
            )
        return _read(self.path)


def folders(home: Path, workspace: Path) -> tuple[Path, Path]:
    """Return the folders that are searched, in order."""
    return home / "workspace" / "sops", workspace / "sops"


def list_sops(home: Path, workspace: Path) -> tuple[FoundSop, ...]:
    """Return all SOPs, sorted by name."""
    found: dict[str, FoundSop] = {}
    seen: list[Path] = []
    for folder in folders(home, workspace):
        try:
            real = folder.resolve()
            names = sorted(os.listdir(real)) if real not in seen else []
        except (FileNotFoundError, NotADirectoryError):
            continue
        seen.append(real)
        for name in names[:MAX_SOPS]:
            path = folder / name / FILE_NAME
            if not NAME.fullmatch(name) or not os.path.lexists(path):
                continue
            first = found.get(name)
            found[name] = (
                FoundSop(name, path) if first is None else FoundSop(name, first.path, path)
            )
    return tuple(found[name] for name in sorted(found))


def find_sop(name: str, home: Path, workspace: Path) -> FoundSop:
    """Return the SOP with this name; raise ``UsageError`` if it does not exist."""
    known = list_sops(home, workspace)
    for one in known:
        if one.name == name:
            return one
    said = suggest(name, [one.name for one in known])
    raise UsageError(
        f"unknown SOP {name!r}{said}",
        rule="sop.unknown",
        hint=f"'coilclaw sop list' lists them; a SOP is a file NAME/{FILE_NAME} in "
        + " or ".join(map(str, folders(home, workspace))),
    )


def _read(path: Path) -> bytes:
    try:
        # A FIFO in place of the file must not block.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as problem:
        raise _unreadable(path, f"cannot be read: {problem.strerror}") from problem
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _unreadable(path, "is not a regular file")
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise _unreadable(path, f"is larger than {MAX_BYTES} bytes")
    return data


def _unreadable(path: Path, what: str) -> UsageError:
    return UsageError(f"{path} {what}", rule="sop.unreadable")
