"""The key that signs runs: create it, replace it, and read its public part."""

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
    """A new key, and the path of the key that it replaced."""

    key_id: str
    aside: Path | None


def new_key(path: Path, *, force: bool = False) -> NewKey:
    """Create a key; with ``force`` an existing key is kept under the name of its id."""
    aside = None
    with explain_os_errors(f"make a key in {path.parent}", rule="key.io"):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        old = checkpoint.find_key(path) if force else None
        if old is not None:
            aside = path.with_name(f"{path.name}.{old.key_id[:16]}")
            os.rename(path, aside)
    return NewKey(checkpoint.create_key(path).key_id, aside)


def read_public_key(path: Path) -> PublicKey:
    """Return the public part of the key; raise with a hint if the key does not exist."""
    return checkpoint.load_key(path).public
