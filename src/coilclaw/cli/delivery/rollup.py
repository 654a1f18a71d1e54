"""``coilclaw rollup``: write the codebase into one file."""

from __future__ import annotations

from pathlib import Path

from coilclaw.cli.command import Console, Namespace, Parser, find_home


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    parser.root().json()


def run(args: Namespace, console: Console) -> None:
    """Write ``codeRollup.txt`` into the tree."""
    from coilclaw.commit import CODEBASE, rollup
    from coilclaw.workspace import open_tree

    with open_tree(Path(args.root), find_home()) as tree:
        made = rollup.roll_up(tree.root, tree.state)
        place = tree.root.path / CODEBASE
        rollup.write(place, made)
    size = len(made.text.encode())
    skipped = [{"path": path, "reason": reason} for path, reason in made.skipped]
    record = {"path": str(place), "files": list(made.files), "skipped": skipped, "bytes": size}
    if not console.emit(record):
        for path, reason in made.skipped:
            console.note(f"left out {path}: {reason}", "yellow")
        console.note(f"{len(made.files):,} files, {size:,} bytes in {place}", "green")
