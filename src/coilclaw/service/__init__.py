"""Wrappers for the system's service manager."""

from typing import Final

PUBLIC_MODULES: Final = ("program", "systemd", "unit")
