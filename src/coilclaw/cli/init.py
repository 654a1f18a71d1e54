"""``coilclaw init``: make a home, a configuration, a memory and a workspace."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from coilclaw.cli.parser import add_json

if TYPE_CHECKING:
    import argparse

    from coilclaw.cli.console import Console


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--workspace",
        metavar="DIR",
        help="where the agent works (default: ~/coilclaw-workspace)",
    )
    add_json(parser)


def run(args: argparse.Namespace, console: Console) -> int:
    """Make what is missing, and say what was made and what was there."""
    from coilclaw.app.home import home
    from coilclaw.app.setup import init
    from coilclaw.cli.dispatch import DONE

    where = home()
    workspace = Path(os.path.abspath(args.workspace)) if args.workspace else None
    done = init(where, os.environ, workspace)
    for warning in done.warnings:
        console.warn(warning)
    if console.as_json:
        console.data(
            {
                "home": str(where),
                "items": [
                    {"what": item.what, "path": str(item.path), "made": item.made}
                    for item in done.items
                ],
                "warnings": list(done.warnings),
            }
        )
        return DONE
    for item in done.items:
        mark, style = ("made", "green") if item.made else ("there", "dim")
        console.print(f"{mark:<6} {item.what:<14} {item.path}", style)
    if any(item.made for item in done.items):
        console.note("next: coilclaw onboard chooses a model; coilclaw agent talks to it", "dim")
    return DONE
