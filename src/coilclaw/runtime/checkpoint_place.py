"""Where checkpoints are written, as ``receipts.checkpoint`` names it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path

PlaceKind: TypeAlias = Literal["file", "git-ref", "url"]

GIT_REF: Final = "git-ref"
DEFAULT_EVERY: Final = 100
_REF: Final = re.compile(r"refs(?:/[A-Za-z0-9_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*){2,8}")


@dataclass(frozen=True, slots=True)
class CheckpointPlace:
    """A file, a ref of a repository, or an address."""

    kind: PlaceKind
    target: str
    """The file's path, the name of the ref, or the address."""
    directory: Path | None = None
    """The repository of a ref; without it, one of our own beside our other state."""
    token_env: str | None = None
    """The variable with the bearer token of an address."""

    def __str__(self) -> str:
        if self.kind != GIT_REF:
            return self.target
        return f"{GIT_REF} {self.target}" + (f" {self.directory}" if self.directory else "")


def kind_of(text: str) -> PlaceKind:
    """Tell the three forms apart."""
    if text.split(" ", 1)[0] == GIT_REF:
        return "git-ref"
    return "url" if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text) else "file"


def is_ref(name: str) -> bool:
    """Tell whether a name is one that git takes, with nothing in it that means more."""
    return _REF.fullmatch(name) is not None and not name.endswith(".lock")
