"""The command line: parse, call, print. One module per noun."""

from coilclaw.cli.main import main

# Not annotated as final: importing ``typing`` would cost more than all the rest of ``--version``.
PUBLIC_MODULES = ("dispatch", "main", "parser")

__all__ = ["PUBLIC_MODULES", "main"]
