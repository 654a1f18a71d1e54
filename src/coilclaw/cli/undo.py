"""``coilclaw undo``: take a change back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from coilclaw.cli.parser import add_json, add_root

if TYPE_CHECKING:
    import argparse

    from coilclaw.cli.console import Console


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "id", nargs="?", metavar="ID", help="the change (default: the last one that stands)"
    )
    add_root(parser)
    parser.add_argument(
        "--run",
        action="store_true",
        help="take back everything that was changed in the same run",
    )
    parser.add_argument(
        "--force", action="store_true", help="overwrite files that were changed since"
    )
    add_json(parser)


def run(args: argparse.Namespace, console: Console) -> int:
    """Take the change back and show the difference."""
    from coilclaw.app.home import home
    from coilclaw.app.tree import open_tree
    from coilclaw.changes import unified
    from coilclaw.cli.dispatch import DONE
    from coilclaw.cli.report import counted, plan_record, undo_command
    from coilclaw.workspace.undo import undo, undo_group

    take_back = undo_group if args.run else undo
    with open_tree(Path(args.root), home()) as tree:
        change = take_back(tree.root, tree.state, args.id, force=args.force)
        plan = tree.changelog.plan(change)
    if console.as_json:
        console.data(
            {
                "outcome": "undone",
                "change": change.id,
                "undoes": list(change.undoes),
                **plan_record(plan),
            }
        )
        return DONE
    console.diff(unified.diff(plan))
    console.note(f"took back {', '.join(change.undoes)}: {counted(plan)}", "green")
    console.note(f"bring it back with: {undo_command(change.id, args.root)}", "dim")
    return DONE
