"""The model context protocol: our tools for others, and the tools of others for us.

Whoever imports ``mcp`` here means the official SDK; it is heavy, and imported where it is used.
"""

from typing import Final

PUBLIC_MODULES: Final = (
    "asgi",
    "connection",
    "definitions",
    "foreigntext",
    "foreigntool",
    "launching",
    "names",
    "offering",
    "pins",
    "settings",
    "stdio",
)
