"""What can stand at a path of a tree: nothing, a file, a symbolic link, or something else."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class RegularFile:
    """The exact bytes of a file and whether its owner may execute it."""

    content: bytes
    executable: bool = False

    @property
    def digest(self) -> str:
        return sha256(self.content).hexdigest()


@dataclass(frozen=True, slots=True)
class Symlink:
    """A symbolic link and the text it holds, which may be any bytes."""

    target: bytes

    @property
    def digest(self) -> str:
        return sha256(self.target).hexdigest()


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Something that is neither: a directory, a FIFO, a socket or a device."""

    kind: Literal["directory", "fifo", "socket", "device"]


FileState: TypeAlias = RegularFile | Symlink | None
"""What a plan may put at a path; ``None`` is nothing."""

Found: TypeAlias = FileState | Obstacle
"""What may be found at a path."""
