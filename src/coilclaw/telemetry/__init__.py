"""Formats, redacts and writes what areas log through the standard library."""

from typing import Final

PUBLIC_MODULES: Final = ("events", "logs")
