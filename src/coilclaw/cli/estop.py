"""``coilclaw estop``: stop all tools of all processes at once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from coilclaw.cli.parser import add_json

if TYPE_CHECKING:
    import argparse

    from coilclaw.cli.console import Console


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--clear", action="store_true", help="let tools run again")
    choice.add_argument("--status", action="store_true", help="only say whether it is set")
    parser.add_argument("--reason", default="", metavar="TEXT", help="kept in the file")
    add_json(parser)


def run(args: argparse.Namespace, console: Console) -> int:
    """Set, clear or show the emergency stop."""
    from coilclaw.app.home import home
    from coilclaw.cli.dispatch import DONE
    from coilclaw.cli.telling import logging_for
    from coilclaw.runtime.estop import Estop

    estop = Estop.of(home())
    with logging_for(os.environ):
        if args.clear:
            was = estop.clear()
            sentence = "cleared: tools may run again" if was else "not set: nothing to clear"
        elif not args.status:
            estop.trigger(args.reason or "coilclaw estop")
            sentence = f"set: no tool runs until 'coilclaw estop --clear' ({estop.path})"
        else:
            sentence = "set" if estop.set else "not set"
    if console.as_json:
        console.data({"estop": estop.set, "path": str(estop.path)})
    else:
        console.print(f"emergency stop {sentence}", "red" if estop.set else "green")
    return DONE
