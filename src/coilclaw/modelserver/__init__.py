"""The scripted model server: a real HTTP server on loopback that plays a script."""

from typing import Final

PUBLIC_MODULES: Final = ("script", "scriptfile", "server")
