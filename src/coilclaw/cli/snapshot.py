"""``coilclaw snapshot``: pictures of a whole tree."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from coilclaw.cli.parser import add_json, add_root

if TYPE_CHECKING:
    import argparse

    from coilclaw.app.tree import Tree
    from coilclaw.cli.console import Console
    from coilclaw.domain.treediff import TreeChange
    from coilclaw.workspace.snapshot import SnapshotStore


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    taking = actions.add_parser("take", help="keep a picture of the tree", allow_abbrev=False)
    comparing = actions.add_parser(
        "diff", help="compare two pictures, or one with the tree as it is", allow_abbrev=False
    )
    comparing.add_argument("old", metavar="ID")
    comparing.add_argument("new", metavar="ID", nargs="?", help="default: the tree as it is")
    comparing.add_argument("--patch", action="store_true", help="print a full binary git patch")
    restoring = actions.add_parser("restore", help="put the tree back", allow_abbrev=False)
    restoring.add_argument("id", metavar="ID")
    restoring.add_argument("--dry-run", action="store_true", help="show what would change")
    listing = actions.add_parser("list", help="all pictures kept of the tree", allow_abbrev=False)
    for action in (taking, comparing, restoring, listing):
        add_root(action)
        add_json(action)
    for action in (taking, comparing, restoring):
        action.add_argument(
            "--exclude",
            action="append",
            default=[],
            metavar="PATH",
            help="leave out this path of the tree (may be repeated)",
        )


def run(args: argparse.Namespace, console: Console) -> int:
    """Take, compare, restore or list."""
    from coilclaw.app.home import home
    from coilclaw.app.tree import open_tree
    from coilclaw.workspace.snapshot import SnapshotStore

    with open_tree(Path(args.root), home()) as tree:
        tree.state.create()
        store = SnapshotStore(tree.state.snapshots)
        action = {"take": _take, "diff": _diff, "restore": _restore, "list": _list}[args.action]
        return action(args, console, tree, store)


def _take(args: argparse.Namespace, console: Console, tree: Tree, store: SnapshotStore) -> int:
    from coilclaw.cli.dispatch import DONE

    snapshot = store.take(tree.root.path, exclude=tuple(args.exclude))
    if console.as_json:
        console.data({"id": snapshot.id, "tree": snapshot.tree, "files": snapshot.files})
    else:
        console.print(snapshot.id)
        console.note(f"{snapshot.files:,} files", "dim")
    return DONE


def _diff(args: argparse.Namespace, console: Console, tree: Tree, store: SnapshotStore) -> int:
    from coilclaw.cli.dispatch import DONE

    old = store.resolve(args.old)
    new = (
        store.resolve(args.new)
        if args.new
        else store.take(tree.root.path, exclude=tuple(args.exclude)).id
    )
    if args.patch:
        console.out.flush()
        console.out.buffer.write(store.patch(old, new))
        console.out.buffer.flush()
        return DONE
    difference = store.diff(old, new)
    if console.as_json:
        console.data(
            {
                "old": old,
                "new": new,
                "changes": [_record(change) for change in difference],
                "git_changes": list(difference.git_changes),
            }
        )
        return DONE
    for change in difference:
        where = f"{change.old_path} -> {change.path}" if change.old_path else change.path
        console.print(f"{change.kind:<9} {where}")
    for name in difference.git_changes:
        console.print(f"{'.git':<9} {name} changed", "yellow")
    if difference.empty:
        console.note("no difference")
    return DONE


def _restore(args: argparse.Namespace, console: Console, tree: Tree, store: SnapshotStore) -> int:
    from coilclaw.changes import unified
    from coilclaw.cli.dispatch import DONE
    from coilclaw.cli.report import counted, plan_record, undo_command
    from coilclaw.workspace.restore import restore

    done = restore(
        tree.root,
        tree.state,
        store,
        args.id,
        dry_run=args.dry_run,
        exclude=tuple(args.exclude),
    )
    for path in done.left:
        console.warn(f"{path} cannot be put back: only its digest was kept")
    if console.as_json:
        name = "planned" if args.dry_run else "restored" if done.change else "unchanged"
        console.data(
            {
                "outcome": name,
                "change": done.change.id if done.change else None,
                "before": done.before,
                "left": list(done.left),
                **plan_record(done.plan),
            }
        )
        return DONE
    console.diff(unified.diff(done.plan))
    if args.dry_run:
        console.note("nothing was changed (dry run)", "yellow")
    elif done.change is None:
        console.note("no file had to be put back")
    else:
        console.note(f"restored by change {done.change.id}: {counted(done.plan)}", "green")
        console.note(f"take it back with: {undo_command(done.change.id, args.root)}", "dim")
    return DONE


def _list(
    args: argparse.Namespace,  # noqa: ARG001 - one shape for all actions
    console: Console,
    tree: Tree,  # noqa: ARG001 - one shape for all actions
    store: SnapshotStore,
) -> int:
    from coilclaw.cli.dispatch import DONE

    ids = store.list()
    if console.as_json:
        console.data(list(ids))
        return DONE
    for snapshot_id in ids:
        console.print(snapshot_id)
    return DONE


def _record(change: TreeChange) -> dict[str, object]:
    return {
        "kind": change.kind,
        "path": change.path,
        "old_path": change.old_path,
        "old_type": change.old_type,
        "new_type": change.new_type,
        "old_id": change.old_id,
        "new_id": change.new_id,
    }
