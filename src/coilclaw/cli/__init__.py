"""The command line: parse, call, print. One module per noun."""

from typing import Final

from coilclaw.cli.main import main

PUBLIC_MODULES: Final = ("main", "parser")

__all__ = ["PUBLIC_MODULES", "main"]
