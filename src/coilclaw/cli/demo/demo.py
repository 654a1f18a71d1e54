"""``coilclaw demo``: show what CoilClaw does, on a tree made for the demo."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from coilclaw.cli.demo.stage import conclude, load_story, print_title, write_files
from coilclaw.kernel import CoilClawError, UsageError

if TYPE_CHECKING:
    from coilclaw.cli.command import Console, Namespace, Parser
    from coilclaw.workspace import Delivery, Tree


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    parser.value(
        "what",
        "WHAT",
        "agent (default): tools behind the gate; deliver: a model's answer on a tree; "
        "run: a contract from one sentence to a sealed merge; trace: a recorded trajectory",
        nargs="?",
        choices=("agent", "deliver", "run", "trace"),
        default="agent",
    )
    parser.flag("--keep", "with 'run' and 'trace': keep the files for inspection")


def run(args: Namespace, console: Console) -> int:
    """Play one of the demos."""
    if args.what == "run":
        from coilclaw.cli.demo import orchestration

        return orchestration.run(console, keep=args.keep)
    if args.what == "trace":
        from coilclaw.cli.demo import trajectory

        return trajectory.run(console, keep=args.keep)
    if args.keep:
        raise UsageError("--keep needs 'demo run' or 'demo trace'", rule="usage.demo")
    if args.what == "deliver":
        return _deliver(console)
    from coilclaw.cli.demo import conversation

    return conversation.run(console)


def _deliver(console: Console) -> int:
    """Apply a sample answer, refuse a malicious one, and revert the first."""
    from coilclaw.workspace import open_tree

    story = load_story("deliver")
    with tempfile.TemporaryDirectory(prefix="coilclaw-demo-") as folder:
        root = Path(folder) / "tree"
        write_files(root, story["files"])
        with open_tree(root, Path(folder) / "home") as tree:
            good = _show(tree, root, story, console)
    hint = "Try it on a tree of your own:  ./scripts/run.sh apply ANSWER.md --root DIR --dry-run"
    return conclude(console, hint, good=good)


def _show(tree: Tree, root: Path, story: dict[str, str], console: Console) -> bool:
    from coilclaw.changes import unified_diff
    from coilclaw.cli.plan_report import count_changes
    from coilclaw.workspace import Delivered, undo_change

    before = _read_tree(root)
    print_title(console, "1. A tree, and a model's answer in two formats at once")
    for line in story["answer"].splitlines():
        console.print("  | " + line, "dim")
    print_title(console, "2. coilclaw apply: one change set, all or nothing")
    outcome = _apply(tree, story["answer"])
    if not isinstance(outcome, Delivered) or outcome.change is None:
        return False
    console.diff(unified_diff.diff_plan(outcome.plan))
    console.print(f"applied {outcome.change.id}: {count_changes(outcome.plan)}", "green")
    after = _read_tree(root)

    print_title(console, "3. A malicious answer: one harmless file, one path outside the tree")
    try:
        _apply(tree, story["evil"])
    except CoilClawError as problem:
        console.print(f"refused: {problem.message} [{problem.rule}]", "yellow")
    else:
        return False
    console.print(f"the tree is untouched: {_read_tree(root) == after}", "green")

    print_title(console, f"4. coilclaw undo {outcome.change.id}")
    taken = undo_change(tree.root, tree.state, None)
    restored = _read_tree(root) == before
    console.print(f"reverted {taken.undoes[0]}: {len(taken.files)} files", "green")
    console.print(f"the tree is byte for byte as before: {restored}", "green")
    return after != before and restored


def _apply(tree: Tree, text: str) -> Delivery:
    from coilclaw.changes import answer
    from coilclaw.workspace import DeliveryTerms, deliver_answer

    return deliver_answer(tree.root, tree.state, answer.parse_answer(text), DeliveryTerms())


def _read_tree(root: Path) -> dict[str, bytes]:
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}
