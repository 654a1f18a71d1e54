"""``coilclaw changes``: what was done to a tree."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from coilclaw.cli.parser import add_json, add_root

if TYPE_CHECKING:
    import argparse

    from coilclaw.app.tree import Tree
    from coilclaw.cli.console import Console
    from coilclaw.workspace.changelog import Entry


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="all changes, oldest first", allow_abbrev=False)
    add_root(listing)
    add_json(listing)
    showing = actions.add_parser("show", help="one change with its diff", allow_abbrev=False)
    showing.add_argument("id", nargs="?", metavar="ID", help="default: the last one that stands")
    add_root(showing)
    add_json(showing)


def run(args: argparse.Namespace, console: Console) -> int:
    """List or show changes."""
    from coilclaw.app.home import home
    from coilclaw.app.tree import open_tree

    with open_tree(Path(args.root), home()) as tree:
        return _list(tree, console) if args.action == "list" else _show(tree, args.id, console)


def _list(tree: Tree, console: Console) -> int:
    from coilclaw.cli.dispatch import DONE

    entries = tree.changelog.entries()
    if console.as_json:
        console.data([_record(entry) for entry in entries])
        return DONE
    if not entries:
        console.note(f"no change of {tree.root.path} was made through CoilClaw")
    for entry in entries:
        state = f"undone by {entry.undone_by}" if entry.undone_by else ""
        if entry.undoes:
            state = f"undoes {', '.join(entry.undoes)}{' · ' + state if state else ''}"
        files = f"{entry.files} file{'s' if entry.files != 1 else ''}"
        console.print(
            f"{entry.id}  {entry.time[:19]}  {entry.origin:<8} {files:<10} {state}".rstrip(),
            "dim" if entry.undone_by else None,
        )
    return DONE


def _show(tree: Tree, change_id: str | None, console: Console) -> int:
    from coilclaw.changes import unified
    from coilclaw.cli.dispatch import DONE
    from coilclaw.cli.report import counted, plan_record

    entry = tree.changelog.find(change_id) if change_id else tree.changelog.last()
    plan = tree.changelog.plan(tree.changelog.load(entry.id))
    if console.as_json:
        console.data({**_record(entry), **plan_record(plan)})
        return DONE
    state = f", undone by {entry.undone_by}" if entry.undone_by else ""
    console.note(f"{entry.id} {entry.origin} {entry.time}: {counted(plan)}{state}", "bold")
    console.diff(unified.diff(plan))
    return DONE


def _record(entry: Entry) -> dict[str, object]:
    return {
        "id": entry.id,
        "time": entry.time,
        "origin": entry.origin,
        "group": entry.group,
        "undoes": list(entry.undoes),
        "undone_by": entry.undone_by or None,
        "files_changed": entry.files,
    }
