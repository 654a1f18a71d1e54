"""Where CoilClaw keeps its own state: configuration, receipts and approvals of a home."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.agent import ApprovalStore, HomeReceipts
    from coilclaw.app.config.values import Config


def find_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Return ``$COILCLAW_HOME``, or ``~/.coilclaw``."""
    named = environ.get("COILCLAW_HOME")
    if named:
        path = Path(named)
        if not path.is_absolute():
            raise UsageError(
                f"COILCLAW_HOME is {named!r}, which is not an absolute path", rule="home.relative"
            )
        return path
    try:
        return Path.home() / ".coilclaw"
    except RuntimeError as problem:
        raise UsageError(
            "the user has no home directory", rule="home.missing", hint="set COILCLAW_HOME"
        ) from problem


def now() -> datetime:
    """Return the time of this machine, with its offset."""
    return datetime.now().astimezone()


def open_config(home: Path, environ: Mapping[str, str]) -> Config:
    """Load the configuration; ``UsageError`` lists all of its problems."""
    from coilclaw.app.config.load import load_config

    return load_config(home / "config.toml", home=home, environ=environ)


def receipts_of(config: Config, home: Path) -> HomeReceipts:
    """Return the receipts that a configuration names."""
    from coilclaw.agent import HomeReceipts

    settings = config.receipts
    return HomeReceipts(
        home, settings.path, config.memory.path, settings.checkpoint, settings.checkpoint_every
    )


def open_desk(home: Path, asker: str = "") -> ApprovalStore:
    """Return the approvals of a home; ``asker`` is for whom one asks there."""
    from coilclaw.agent import ApprovalStore

    return ApprovalStore(home, now, asker=asker)
