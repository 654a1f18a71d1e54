"""code-commit: edit → build → repair, fully logged."""

from typing import Final

PUBLIC_MODULES: Final = (
    "build",
    "interrupts",
    "logs",
    "models",
    "project",
    "project_turn",
    "rollup",
    "setup",
    "workflow",
)
