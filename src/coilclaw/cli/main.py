"""The entry point: choose the command, run it, turn errors into exit codes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments in (["--version"], ["-V"]):
        from coilclaw import __version__

        sys.stdout.write(f"coilclaw {__version__}\n")
        return 0
    from coilclaw.cli.dispatch import dispatch

    return dispatch(arguments)
