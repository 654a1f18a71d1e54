"""TOML → the settings of each area, with all problems in one pass."""

from typing import Final

PUBLIC_MODULES: Final = (
    "edit",
    "keys",
    "load",
    "locate",
    "problem",
    "sample",
    "show",
    "store",
    "values",
)
