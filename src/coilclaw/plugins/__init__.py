"""Tools that are programs of their own: what they declare, how they are installed and run."""

from typing import Final

PUBLIC_MODULES: Final = ("installing", "manifest", "offer", "settings", "store", "trial")
