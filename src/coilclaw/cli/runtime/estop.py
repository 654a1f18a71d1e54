"""``coilclaw estop``: stop all tools in all processes at once."""

from __future__ import annotations

import os

from coilclaw.cli.command import Console, Namespace, Parser, find_home


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--clear", action="store_true", help="let tools run again")
    choice.add_argument("--status", action="store_true", help="only show whether it is set")
    parser.value("--reason", "TEXT", "the reason, kept in the file", default="").json()


def run(args: Namespace, console: Console) -> None:
    """Set, clear or show the emergency stop."""
    from coilclaw.agent import Estop
    from coilclaw.cli.session import open_logs

    estop = Estop.of(find_home())
    with open_logs(os.environ):
        if args.clear:
            was = estop.clear()
            sentence = "cleared: tools may run again" if was else "not set: nothing to clear"
        elif not args.status:
            estop.trigger(args.reason or "coilclaw estop")
            sentence = f"set: no tool runs until 'coilclaw estop --clear' ({estop.path})"
        else:
            sentence = "set" if estop.set else "not set"
    if not console.emit({"estop": estop.set, "path": str(estop.path)}):
        console.print(f"emergency stop {sentence}", "red" if estop.set else "green")
