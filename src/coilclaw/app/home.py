"""Where CoilClaw keeps its own state."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from coilclaw.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


def home(environ: Mapping[str, str] = os.environ) -> Path:
    """Return ``$COILCLAW_HOME``, or ``~/.coilclaw``."""
    named = environ.get("COILCLAW_HOME")
    if named:
        path = Path(named)
        if not path.is_absolute():
            raise UsageError(
                f"COILCLAW_HOME is {named!r}, which is no absolute path", rule="home.relative"
            )
        return path
    try:
        return Path.home() / ".coilclaw"
    except RuntimeError as problem:
        raise UsageError(
            "there is no home directory", rule="home.missing", hint="set COILCLAW_HOME"
        ) from problem


def signing_key_path(home: Path) -> Path:
    """Return where the key is that runs and checkpoints are signed with."""
    return home / "keys" / "signing.key"
