"""``coilclaw prompt``: print the instructions that tell a model how to answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coilclaw.cli.command import Console, Namespace, Parser


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    from coilclaw.changes import NAMES

    parser.value("name", "NAME", ", ".join(NAMES), choices=NAMES)


def run(args: Namespace, console: Console) -> None:
    """Print the text."""
    from coilclaw.changes import instructions

    console.out.write(instructions.instruction_text(args.name))
