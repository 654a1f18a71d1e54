"""Many independent jobs at once, on this machine."""

from typing import Final

PUBLIC_MODULES: Final = ("pool",)
