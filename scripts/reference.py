"""Writes the reference pages that are made from the program: docs/cli.md and docs/errors.md."""

from __future__ import annotations

import argparse
import ast
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from coilclaw.cli.dispatch import exit_code
from coilclaw.cli.parser import build_parser
from coilclaw.kernel import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "coilclaw"


def pages() -> dict[Path, str]:
    """Return each page and what it should say."""
    return {ROOT / "docs" / "cli.md": cli_page(), ROOT / "docs" / "errors.md": errors_page()}


def cli_page() -> str:
    """List every command with its arguments."""
    out = [
        "# Command line",
        "",
        "Made by `scripts/reference.py` from the program itself.",
        "",
        "Exit codes: 0 done and passed · 1 a gate, test, review, build or verification failed ·",
        "2 wrong usage, configuration or contract, or an answer that cannot be read · 3 denied or",
        "stopped · 4 a provider failed · 5 our own fault (I/O, environment).",
        "",
    ]
    _command(build_parser(), out, depth=2)
    return "\n".join(out).rstrip() + "\n"


def _command(parser: argparse.ArgumentParser, out: list[str], depth: int) -> None:
    children = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if depth > 2:
        out += [f"{'#' * min(depth, 4)} `{parser.prog}`", ""]
        if parser.description:
            out += [parser.description, ""]
    rows = [_row(action) for action in parser._actions if action not in children]
    rows = [row for row in rows if row]
    if rows and not (depth > 2 and children):
        out += ["| argument | meaning |", "|---|---|", *rows, ""]
    for action in children:
        for child in action.choices.values():
            _command(child, out, depth + 1)


def _row(action: argparse.Action) -> str:
    if "--help" in action.option_strings:
        return ""
    name = ", ".join(action.option_strings) or str(action.metavar or action.dest)
    if action.option_strings and action.nargs != 0:
        choices = "|".join(map(str, action.choices)) if action.choices else action.dest
        value = str(action.metavar or choices)
        name = f"{name} [{value}]" if action.nargs == "?" else f"{name} {value}"
    cells = (f"`{name}`", action.help or "")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def errors_page() -> str:
    """List every error class with its exit code, and every rule with where it stands."""
    out = [
        "# Errors and rules",
        "",
        "Made by `scripts/reference.py` from the program itself. Every error names the rule it",
        "stands for, in brackets at the end of its sentence.",
        "",
        "## Kinds of error",
        "",
        "| error | exit code | meaning |",
        "|---|---|---|",
    ]
    for kind in _tree(errors.CoilClawError):
        meaning = (kind.__doc__ or "").strip().splitlines()[0]
        sample = kind.__new__(kind)
        out.append(f"| `{kind.__name__}` | {exit_code(sample)} | {meaning} |")
    out += ["", "## Rules", "", "| rule | where |", "|---|---|"]
    for rule, places in sorted(_rules().items()):
        out.append(f"| `{rule}` | {', '.join(f'`{place}`' for place in sorted(places))} |")
    return "\n".join(out) + "\n"


def _tree(kind: type[errors.CoilClawError]) -> list[type[errors.CoilClawError]]:
    found = [kind]
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            found += _tree(child)
    return found


SHAPE = re.compile(r"([a-z]+)\.([a-z_]+)")
NO_RULES = frozenset({"coilclaw", "core", "encodings", "gc", "index", "info", "maintenance", "os"})
FILES = frozenset(
    {"json", "jsonl", "lock", "md", "py", "pyz", "sh", "sqlite", "toml", "torn", "txt", "worktree"}
    | {"cfg", "gradle", "ini", "lockb", "lockfile", "mod", "sum", "xml"}
)
"""What dotted texts that are no rules begin or end with: modules, settings of git, files."""


def _rules() -> dict[str, set[str]]:
    """A rule is a dotted text that is no module, setting or file.

    Where a module puts a rule together (``f"lines.{…}"``), the tests name what can come out.
    """
    texts: dict[str, set[str]] = {}
    composed: dict[str, set[str]] = {}
    for module, node in _nodes(SOURCE):
        if shape := _shape(node):
            texts.setdefault(shape[0], set()).add(module)
        if isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
            head = str(node.values[0].value)
            if re.fullmatch(r"[a-z]+\.", head):
                composed.setdefault(head[:-1], set()).add(module)
    for _, node in _nodes(ROOT / "tests"):
        if (shape := _shape(node)) and shape[1] in composed and shape[0] not in texts:
            texts[shape[0]] = composed[shape[1]]
    return texts


def _nodes(folder: Path) -> Iterator[tuple[str, ast.AST]]:
    for path in sorted(folder.rglob("*.py")):
        if path.name == "__init__.py":
            continue  # the table of a page names modules
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            yield str(path.relative_to(folder.parent)), node


def _shape(node: ast.AST) -> re.Match[str] | None:
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return None
    shape = SHAPE.fullmatch(node.value)
    if not shape or shape[1] in NO_RULES or shape[2] in FILES or shape[0] == "journal.key":
        return None
    return shape


def main() -> int:
    """Write the pages, or with ``--check`` say which are stale."""
    check = sys.argv[1:] == ["--check"]
    stale = [
        path for path, text in pages().items() if not path.exists() or path.read_text() != text
    ]
    for path in stale:
        if check:
            print(f"stale: {path.relative_to(ROOT)}; run scripts/reference.py")
        else:
            path.write_text(pages()[path])
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
