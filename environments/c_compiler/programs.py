"""What the suites of the C-compiler environment give to its judge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Program:
    """One C program, and what a right compiler makes of it."""

    name: str
    """Of the case: unique in its shard; letters, digits and ``_ . + -`` only."""
    sources: tuple[Path, ...]
    """Absolute; all are given to the compiler (.c and .s), the first is the program itself."""
    rejected: bool = False
    """Whether the program must not compile."""
    stdout: bytes | None = b""
    """What it prints; ``None``: not judged."""
    exit_code: int = 0
    include: tuple[Path, ...] = ()
    """Headers (absolute) laid beside the sources, keeping their place relative to ``root``."""
    root: Path | None = None
    """The common directory of sources and headers; ``None``: each file by its base name."""
    link: tuple[str, ...] = ()
    """Such as ``("-lm",)``."""
    reference_flags: tuple[str, ...] = ()
    """For the reference compiler only."""
    trailing: bool = False
    """Whether white space at the end of standard output is left out of the comparison."""
