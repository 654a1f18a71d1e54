"""The key that runs are signed with: making it, putting it aside, and its public part."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coilclaw.kernel import checkpoint, explain_os_errors

if TYPE_CHECKING:
    from pathlib import Path

    from coilclaw.kernel import PublicKey


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was made, and where the one before it went."""

    key_id: str
    aside: Path | None


def new_key(path: Path, *, force: bool = False) -> NewKey:
    """Make a key; with ``force`` one that is there is renamed after its id, and never lost."""
    aside = None
    with explain_os_errors(f"make a key in {path.parent}", rule="key.io"):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        old = checkpoint.find_key(path) if force else None
        if old is not None:
            aside = path.with_name(f"{path.name}.{old.key_id[:16]}")
            os.rename(path, aside)
    return NewKey(checkpoint.create_key(path).key_id, aside)


def read_public_key(path: Path) -> PublicKey:
    """The public part of the key; where there is none, how to make one."""
    return checkpoint.load_key(path).public
