"""Gates: contract × recorded evidence → result. Pure."""

from typing import Final

PUBLIC_MODULES: Final = (
    "ambient_files",
    "approval",
    "binary",
    "command",
    "command_place",
    "commandline",
    "diff",
    "forbiddenaction",
    "integrated",
    "leavings",
    "locks",
    "mcp",
    "merge",
    "network",
    "outputschema",
    "policy",
    "result",
    "reviewer",
    "sampling",
    "schema",
    "scope",
    "testfiles",
    "testoutput",
    "tests",
    "testweakening",
)
