"""Values shared by all areas. Pure: nothing here reads a file, a clock or the environment."""

from typing import Final

PUBLIC_MODULES: Final = (
    "canonical",
    "files",
    "messages",
    "secret",
    "treediff",
    "treepath",
    "verdict",
)
