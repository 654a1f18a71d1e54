"""``coilclaw snapshot``: take, compare, restore and list snapshots of a whole tree."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from coilclaw.cli.command import Console, Namespace, Parser, find_home, pick

if TYPE_CHECKING:
    from coilclaw.workspace import SnapshotStore, Tree


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    action = parser.actions()
    taking = action("take", "take a snapshot of the tree")
    comparing = action("diff", "compare two snapshots, or one with the current tree")
    comparing.value("old", "ID", None)
    comparing.value("new", "ID", "default: the current tree", nargs="?")
    comparing.flag("--patch", "print a full binary git patch")
    restoring = action("restore", "restore the tree")
    restoring.value("id", "ID", None).flag("--dry-run", "show what would change")
    action("list", "list all snapshots of the tree").root().json()
    for each in (taking, comparing, restoring):
        each.root().json()
        each.many("--exclude", "PATH", "leave out this path of the tree (repeatable)")


def run(args: Namespace, console: Console) -> None:
    """Take, compare, restore or list."""
    from coilclaw.workspace import SnapshotStore, open_tree

    with open_tree(Path(args.root), find_home()) as tree:
        tree.state.create()
        store = SnapshotStore(tree.state.snapshots)
        if args.action == "list":
            ids = store.list()
            console.table(ids, ((name, None) for name in ids))
        else:
            act = {"take": _take, "diff": _diff, "restore": _restore}[args.action]
            act(args, console, tree, store)


def _take(args: Namespace, console: Console, tree: Tree, store: SnapshotStore) -> None:
    snapshot = store.take(tree.root.path, exclude=tuple(args.exclude))
    if not console.emit(pick(snapshot, "id", "tree", "files")):
        console.print(snapshot.id)
        console.note(f"{snapshot.files:,} files", "dim")


def _diff(args: Namespace, console: Console, tree: Tree, store: SnapshotStore) -> None:
    old = store.resolve(args.old)
    if args.new:
        new = store.resolve(args.new)
    else:
        new = store.take(tree.root.path, exclude=tuple(args.exclude)).id
    if args.patch:
        console.write_bytes(store.patch(old, new))
        return
    difference = store.diff(old, new)
    names = ("kind", "path", "old_path", "old_type", "new_type", "old_id", "new_id")
    changes = [pick(change, *names) for change in difference]
    record = {"old": old, "new": new, "changes": changes}
    if console.emit({**record, "git_changes": list(difference.git_changes)}):
        return
    for change in difference:
        where = f"{change.old_path} -> {change.path}" if change.old_path else change.path
        console.print(f"{change.kind:<9} {where}")
    for name in difference.git_changes:
        console.print(f"{'.git':<9} {name} changed", "yellow")
    if difference.empty:
        console.note("no difference")


def _restore(args: Namespace, console: Console, tree: Tree, store: SnapshotStore) -> None:
    from coilclaw.cli.plan_report import count_changes, format_undo_command, show_plan
    from coilclaw.workspace import restore_snapshot

    done = restore_snapshot(
        tree.root,
        tree.state,
        store,
        args.id,
        dry_run=args.dry_run,
        exclude=tuple(args.exclude),
    )
    for path in done.left:
        console.warn(f"{path} cannot be restored: only its digest was kept")
    name = "planned" if args.dry_run else "restored" if done.change else "unchanged"
    change = done.change.id if done.change else None
    record = {"outcome": name, "change": change, "before": done.before, "left": list(done.left)}
    if show_plan(console, done.plan, record):
        return
    if args.dry_run:
        console.note("nothing was changed (dry run)", "yellow")
    elif done.change is None:
        console.note("no file had to be restored")
    else:
        console.note(f"restored by change {done.change.id}: {count_changes(done.plan)}", "green")
        console.note(f"revert it with: {format_undo_command(done.change.id, args.root)}", "dim")
