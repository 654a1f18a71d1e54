"""A model's answer → a change set → a plan. Pure: file contents come in as arguments."""

from typing import Final

PUBLIC_MODULES: Final = (
    "answer",
    "failure_report",
    "instructions",
    "operations",
    "plan",
    "planner",
    "render",
    "sighting",
    "unified",
)
