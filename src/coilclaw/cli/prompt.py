"""``coilclaw prompt``: the text that tells a model how to answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from coilclaw.cli.console import Console


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    from coilclaw.changes.instructions import NAMES

    parser.add_argument("name", choices=NAMES, metavar="NAME", help=", ".join(NAMES))


def run(args: argparse.Namespace, console: Console) -> int:
    """Print the text."""
    from coilclaw.changes import instructions
    from coilclaw.cli.dispatch import DONE

    console.out.write(instructions.text(args.name))
    return DONE
