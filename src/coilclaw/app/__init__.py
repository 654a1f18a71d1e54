"""Where objects are wired together, and nowhere else."""

from typing import Final

PUBLIC_MODULES: Final = (
    "agentwiring",
    "committing",
    "doctor",
    "home",
    "mcpwiring",
    "pluginwiring",
    "policy",
    "providers",
    "serving",
    "setup",
    "sopwiring",
    "toolbox",
    "tree",
)
