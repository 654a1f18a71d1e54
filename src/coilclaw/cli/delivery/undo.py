"""``coilclaw undo``: revert a change."""

from __future__ import annotations

from pathlib import Path

from coilclaw.cli.command import Console, Namespace, Parser, find_home


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    parser.value("id", "ID", "the change (default: the last one that is not undone)", nargs="?")
    parser.root()
    parser.flag("--run", "revert everything that the same run changed")
    parser.flag("--force", "overwrite files that have changed since")
    parser.json()


def run(args: Namespace, console: Console) -> None:
    """Revert the change and show the difference."""
    from coilclaw.cli.plan_report import count_changes, format_undo_command, show_plan
    from coilclaw.workspace import open_tree, undo_change, undo_group

    take_back = undo_group if args.run else undo_change
    with open_tree(Path(args.root), find_home()) as tree:
        change = take_back(tree.root, tree.state, args.id, force=args.force)
        plan = tree.changelog.plan(change)
    record = {"outcome": "undone", "change": change.id, "undoes": list(change.undoes)}
    if not show_plan(console, plan, record):
        console.note(f"reverted {', '.join(change.undoes)}: {count_changes(plan)}", "green")
        console.note(f"restore it with: {format_undo_command(change.id, args.root)}", "dim")
