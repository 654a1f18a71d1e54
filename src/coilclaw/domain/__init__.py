"""Values shared by all areas. Pure: nothing here reads a file, a clock or the environment."""

from typing import Final

PUBLIC_MODULES: Final = (
    "budget",
    "canonical",
    "effects",
    "files",
    "freeform",
    "messages",
    "parts",
    "redacting",
    "secret",
    "toolcalls",
    "treediff",
    "treepath",
    "turns",
    "verdict",
    "visible_text",
)
