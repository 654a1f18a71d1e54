"""The user's tree: resolve, read, write a plan, snapshot, git, processes and the OS sandbox."""

from typing import Final

PUBLIC_MODULES: Final = (
    "cancel",
    "changefile",
    "changelog",
    "delivery",
    "git",
    "places",
    "process",
    "procfs",
    "recovery",
    "resolve",
    "restore",
    "sandbox",
    "snapshot",
    "state",
    "undo",
    "writer",
)
