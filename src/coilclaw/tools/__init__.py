"""What an agent can call: each tool has a schema, declared effects and one way to be performed."""

from typing import Final

PUBLIC_MODULES: Final = (
    "basis",
    "builtin",
    "contract",
    "file_search",
    "filewrite",
    "output",
    "schema",
    "searchsettings",
    "shellbox",
    "shellenv",
)
