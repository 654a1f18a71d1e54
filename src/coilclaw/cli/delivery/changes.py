"""``coilclaw changes``: list, show and verify the changes made to a tree."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from coilclaw.cli.command import DONE, FAILED, count_noun, find_home, pick
from coilclaw.kernel import CoilClawError

if TYPE_CHECKING:
    from coilclaw.cli.command import Console, Namespace, Parser
    from coilclaw.workspace import ChangeEntry, Tree


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    action = parser.actions()
    action("list", "list all changes, oldest first").root().json()
    showing = action("show", "show one change with its diff")
    summary = "the change (default: the last one that is not undone)"
    showing.value("id", "ID", summary, nargs="?").root().json()
    action("verify", "check that no record was tampered with").root().json()


def run(args: Namespace, console: Console) -> int:
    """List, show or verify changes."""
    from coilclaw.workspace import open_tree

    with open_tree(Path(args.root), find_home()) as tree:
        if args.action == "verify":
            return _verify(tree, console)
        return _list(tree, console) if args.action == "list" else _show(tree, args.id, console)


def _verify(tree: Tree, console: Console) -> int:
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
    console.emit({"ok": not problems, "records": records, "problems": problems})
    for sentence in problems:
        console.error(sentence, rule="changes.tampered")
    if not problems:
        console.note(f"{records} changes verified: the chain, the anchor and all stored contents")
    return FAILED if problems else DONE


def _list(tree: Tree, console: Console) -> int:
    entries = tree.changelog.entries()
    if console.emit([_record(entry) for entry in entries]):
        return DONE
    if not entries:
        console.note(f"CoilClaw has made no changes to {tree.root.path}")
    for entry in entries:
        undoes = f"undoes {', '.join(entry.undoes)}" if entry.undoes else ""
        undone = f"undone by {entry.undone_by}" if entry.undone_by else ""
        state = " · ".join(filter(None, (undoes, undone)))
        files = count_noun(entry.files, "file")
        console.print(
            f"{entry.id}  {entry.time[:19]}  {entry.origin:<8} {files:<10} {state}".rstrip(),
            "dim" if entry.undone_by else None,
        )
    return DONE


def _show(tree: Tree, change_id: str | None, console: Console) -> int:
    from coilclaw.cli.plan_report import count_changes, show_plan

    entry = tree.changelog.last() if change_id is None else tree.changelog.find(change_id)
    plan = tree.changelog.plan(tree.changelog.load(entry))
    if not console.as_json:
        state = f", undone by {entry.undone_by}" if entry.undone_by else ""
        counted = f"{count_changes(plan)}{state}"
        console.note(f"{entry.id} {entry.origin} {entry.time}: {counted}", "bold")
    show_plan(console, plan, _record(entry))
    return DONE


def _record(entry: ChangeEntry) -> dict[str, object]:
    return {
        **pick(entry, "id", "time", "origin", "group", "undoes"),
        "undone_by": entry.undone_by or None,
        "files_changed": entry.files,
    }
