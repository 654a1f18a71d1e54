"""Conversations and turns, kept and searched."""

from typing import Final

PUBLIC_MODULES: Final = ("rows", "store")
