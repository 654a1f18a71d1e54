"""What stands at a path that an operation names; the caller looks it up, the planner judges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coilclaw.domain.files import Found
    from coilclaw.domain.treepath import TreePath


@dataclass(frozen=True, slots=True)
class Sighting:
    """What stands at a path that an operation names."""

    own: TreePath
    """Where the name itself stands, once directories that are links are followed."""
    own_found: Found
    real: TreePath
    """Where reading or writing it ends up, once a link at its end is followed too."""
    real_found: Found
    identity: tuple[int, int] | None = None
    """Device and inode of an existing file with one name, to notice two spellings of it."""
