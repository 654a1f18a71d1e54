"""Our own state on disk: atomic files, file locks and the journal."""

from typing import Final

PUBLIC_MODULES: Final = (
    "atomic",
    "checkpoint",
    "journal",
    "lock",
    "paths",
    "signing",
    "sqlite",
    "verify",
)
