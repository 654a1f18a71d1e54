"""Deterministic workflows: stages of tools, agents and approvals that survive a crash."""

from typing import Final

PUBLIC_MODULES: Final = (
    "document",
    "engine",
    "folders",
    "inputs",
    "interruption",
    "means",
    "outcome",
    "parse",
    "problem",
    "runfile",
    "validate",
)
