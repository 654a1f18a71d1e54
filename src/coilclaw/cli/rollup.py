"""``coilclaw rollup``: the codebase in one file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from coilclaw.cli.parser import add_json, add_root

if TYPE_CHECKING:
    import argparse

    from coilclaw.cli.console import Console


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_root(parser)
    add_json(parser)


def run(args: argparse.Namespace, console: Console) -> int:
    """Write ``codeRollup.txt`` into the tree."""
    from coilclaw.app.home import home
    from coilclaw.app.tree import open_tree
    from coilclaw.cli.dispatch import DONE
    from coilclaw.codecommit import rollup
    from coilclaw.codecommit.project import CODEBASE

    with open_tree(Path(args.root), home()) as tree:
        made = rollup.roll_up(tree.root, tree.state)
        rollup.write(tree.root.path / CODEBASE, made)
        place = tree.root.path / CODEBASE
    if console.as_json:
        console.data(
            {
                "path": str(place),
                "files": list(made.files),
                "skipped": [{"path": path, "reason": reason} for path, reason in made.skipped],
                "bytes": len(made.text.encode()),
            }
        )
        return DONE
    for path, reason in made.skipped:
        console.note(f"left out {path}: {reason}", "yellow")
    console.note(
        f"{len(made.files):,} files, {len(made.text.encode()):,} bytes in {place}", "green"
    )
    return DONE
