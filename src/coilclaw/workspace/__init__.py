"""The user's tree: resolve, read, write a plan, snapshot, git, processes and the OS sandbox."""

from typing import Final

PUBLIC_MODULES: Final = (
    "borrowing",
    "cancel",
    "changefile",
    "changelog",
    "commits",
    "delivery",
    "environment",
    "git",
    "landing",
    "merging",
    "owner",
    "orphans",
    "places",
    "process",
    "procfs",
    "recovery",
    "removal",
    "repository",
    "resolve",
    "restore",
    "rollback",
    "sandbox",
    "snapshot",
    "state",
    "undo",
    "worktree",
    "worktrees",
    "writer",
)
