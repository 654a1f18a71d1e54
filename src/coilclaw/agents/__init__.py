"""Agents: who performs work, behind one protocol that yields parts."""

from typing import Final

PUBLIC_MODULES: Final = (
    "acp",
    "builtin",
    "codecommit",
    "codex",
    "codexexec",
    "containment",
    "denial",
    "finding",
    "installing",
    "naming",
    "opencode",
    "part_summary",
    "process",
    "runner",
    "script",
    "scripted",
    "shellpolicy",
    "transcript",
)
