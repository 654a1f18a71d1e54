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
    checking = actions.add_parser(
        "verify", help="check that nothing recorded was tampered with", allow_abbrev=False
    )
    add_root(checking)
    add_json(checking)


def run(args: argparse.Namespace, console: Console) -> int:
    """List or show changes."""
    from coilclaw.app.home import home
    from coilclaw.app.tree import open_tree

    with open_tree(Path(args.root), home()) as tree:
        if args.action == "verify":
            return _verify(tree, console)
        return _list(tree, console) if args.action == "list" else _show(tree, args.id, console)


def _verify(tree: Tree, console: Console) -> int:
    from coilclaw.cli.dispatch import DONE, FAILED
    from coilclaw.errors import CoilClawError

    problems: list[str] = []
    report = tree.changelog.verify()
    if report is not None and report.break_ is not None:
        problems.append(report.break_.sentence)
    else:
        for entry in tree.changelog.entries():
            try:
                tree.changelog.plan(tree.changelog.load(entry))
            except CoilClawError as problem:
                problems.append(problem.message)
    records = report.records if report else 0
    if console.as_json:
        console.data({"ok": not problems, "records": records, "problems": problems})
    for sentence in problems:
        console.error(sentence, rule="changes.tampered")
    if not problems:
        console.note(f"{records} changes verified: the chain, the anchor and all kept contents")
    return FAILED if problems else DONE


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

    entry = tree.changelog.last() if change_id is None else tree.changelog.find(change_id)
    plan = tree.changelog.plan(tree.changelog.load(entry))
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
