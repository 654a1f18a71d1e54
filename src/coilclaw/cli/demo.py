"""``coilclaw demo``: what the product does, on a tree made for the purpose."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import argparse

    from coilclaw.app.tree import Tree
    from coilclaw.cli.console import Console
    from coilclaw.workspace.delivery import Delivery

TREE: Final = {
    "greet.py": 'def greet(name):\n    print("Hello " + name)\n\n\ngreet("world")\n',
    "notes/old.txt": "to be removed\n",
    "README.md": "# Sample\n\nRun `python greet.py`.\n",
}

ANSWER: Final = """\
I made the greeting configurable. First the small edit:

```json
{"root": ".", "patches": [{"path": "greet.py", "replacements": [
  {"find": "def greet(name):\\n    print(\\"Hello \\" + name)",
   "replace": "def greet(name, word=\\"Hello\\"):\\n    print(f\\"{word} {name}\\")"}]}]}
```

Then a new file and one that is no longer needed:

^^^tests/test_greet.py
from greet import greet


def test_greet(capsys):
    greet("you", word="Hi")
    assert capsys.readouterr().out.endswith("Hi you\\n")
^^^end

^^^notes/old.txt
^^^delete
"""

EVIL: Final = """\
Just a small clean-up:

```json
{"root": ".", "files": [
  {"path": "greet.py", "content": "print('harmless')\\n"},
  {"path": "docs/../../.ssh/authorized_keys", "content": "ssh-ed25519 AAAA…\\n"}]}
```
"""


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "what",
        nargs="?",
        choices=("agent", "deliver", "run", "trace"),
        default="agent",
        metavar="WHAT",
        help="agent (default): tools behind the gate; deliver: a model's answer on a tree; "
        "run: a contract from one sentence to a sealed merge; trace: a recorded trajectory",
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="of 'demo run' and 'demo trace', leave what was made to look at",
    )


def run(args: argparse.Namespace, console: Console) -> int:
    """Play one of the demos."""
    if args.what == "run":
        from coilclaw.cli import demorun

        return demorun.run(console, keep=args.keep)
    if args.what == "trace":
        from coilclaw.cli import demotrace

        return demotrace.run(console, keep=args.keep)
    if args.keep:
        from coilclaw.errors import UsageError

        raise UsageError(
            "only 'demo run' and 'demo trace' leave something to keep", rule="usage.demo"
        )
    if args.what == "deliver":
        return _deliver(console)
    from coilclaw.cli import demoagent

    return demoagent.run(console)


def _deliver(console: Console) -> int:
    """Apply a sample answer, refuse an evil one, and take the first back."""
    from coilclaw.app.tree import open_tree
    from coilclaw.cli.dispatch import DONE, FAILED

    with tempfile.TemporaryDirectory(prefix="coilclaw-demo-") as folder:
        root, home = Path(folder) / "tree", Path(folder) / "home"
        for name, text in TREE.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        before = _picture(root)
        with open_tree(root, home) as tree:
            good = _show(tree, root, before, console)
    if not good:
        console.error("the demo did not do what it shows", rule="demo.failed")
    return DONE if good else FAILED


def _show(tree: Tree, root: Path, before: dict[str, bytes], console: Console) -> bool:
    from coilclaw.changes import unified
    from coilclaw.cli.report import counted
    from coilclaw.errors import CoilClawError
    from coilclaw.workspace.delivery import Delivered
    from coilclaw.workspace.undo import undo

    _title(console, "1. A tree, and a model's answer in two formats at once")
    for line in ANSWER.splitlines():
        console.print("  | " + line, "dim")
    _title(console, "2. coilclaw apply: one change set, all or nothing")
    outcome = _apply(tree, ANSWER)
    if not isinstance(outcome, Delivered) or outcome.change is None:
        return False
    console.diff(unified.diff(outcome.plan))
    console.print(f"applied {outcome.change.id}: {counted(outcome.plan)}", "green")
    after = _picture(root)

    _title(console, "3. An evil answer: one harmless file, one path that climbs out")
    try:
        _apply(tree, EVIL)
    except CoilClawError as problem:
        console.print(f"refused: {problem.message} [{problem.rule}]", "yellow")
    else:
        return False
    console.print(f"the tree is untouched: {_picture(root) == after}", "green")

    _title(console, f"4. coilclaw undo {outcome.change.id}")
    taken = undo(tree.root, tree.state, None)
    console.print(f"took back {taken.undoes[0]}: {len(taken.files)} files", "green")
    console.print(f"the tree is byte for byte what it was: {_picture(root) == before}", "green")
    console.print()
    console.print(
        "Try it on a tree of yours:  ./scripts/run.sh apply ANSWER.md --root DIR --dry-run"
    )
    return after != before and _picture(root) == before


def _apply(tree: Tree, text: str) -> Delivery:
    from coilclaw.changes import answer
    from coilclaw.workspace.delivery import Terms, deliver

    return deliver(tree.root, tree.state, answer.parse(text), Terms())


def _picture(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def _title(console: Console, text: str) -> None:
    console.print()
    console.print(text, "bold")
