"""Writes the reference pages that are made from the program: docs/cli.md and docs/errors.md."""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from coilclaw.cli.dispatch import exit_code
from coilclaw.cli.parser import build_parser
from coilclaw.kernel import errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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
    """List every error class with its exit code, and every rule with its sentence and remedy."""
    out = [
        "# Errors and rules",
        "",
        "Made by `scripts/reference.py` from the program itself. Every error ends with its rule in",
        "brackets. Names in braces stand for what the message names.",
        "",
        "## Kinds of error",
        "",
        "| error | exit code | meaning | what to do |",
        "|---|---|---|---|",
    ]
    for kind in _tree(errors.CoilClawError):
        meaning = (kind.__doc__ or "").strip().splitlines()[0]
        code, remedy = exit_code(kind.__new__(kind)), find_remedy(kind.__name__)
        out.append(f"| `{kind.__name__}` | {code} | {meaning} | {remedy} |")
    out += ["", "## Rules", "", "| rule | message | what to do |", "|---|---|---|"]
    for name, rule in sorted(find_rules().items()):
        cells = (f"`{name}`", rule.meaning, rule.hint or find_remedy(rule.kind, name))
        out.append("| " + " | ".join(_cell(text) for text in cells) + " |")
    return "\n".join(out) + "\n"


def _cell(text: str) -> str:
    """Return a text as one cell of a table."""
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())


def _tree(kind: type[errors.CoilClawError]) -> list[type[errors.CoilClawError]]:
    found = [kind]
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            found += _tree(child)
    return found


@dataclass
class Rule:
    """What the program says when a rule applies, and what the user can do about it."""

    meaning: str = ""
    hint: str = ""
    kind: str = ""


def find_remedy(kind: str, rule: str = "") -> str:
    """Return what helps against a rule, by its family or else by the kind of its error."""
    kind = MEANINGS["kinds"].get(kind, kind)
    named: object = getattr(errors, kind, None)
    kinds = [base.__name__ for base in named.__mro__] if isinstance(named, type) else [kind]
    remedies = MEANINGS["families"] | MEANINGS["remedies"]
    names = [rule.partition(".")[0], *kinds, "other"]
    return next(remedies[name] for name in names if name in remedies)


MEANINGS: dict[str, dict[str, str]] = tomllib.loads(
    (ROOT / "scripts" / "rule_meanings.toml").read_text(encoding="utf-8")
)
"""Remedies by kind of error, and the rules whose sentence is put together at run time."""

NOT_RULES = frozenset(
    {"build.sh", "font.family", "go.mod", "package.json", "patch.diff", "pdm.lock", "poetry.lock"}
    | {"pom.xml", "pyproject.toml", "query.txt", "tox.ini", "uv.lock"}
)
"""Dotted texts that stand beside a sentence and are not rules."""

SHAPE = re.compile(r"(?!coilclaw\.)[a-z_]+(?:\.[a-z_]+)+")
Names = Mapping[str, str]
"""The texts that names of a scope stand for."""


def find_rules() -> dict[str, Rule]:
    """Return every rule that the program names beside a sentence, or that the table explains.

    A rule is a dotted text that stands in one call, tuple or table entry with a sentence. An
    argument that is a name stands for the text that its function or module assigns to it.
    """
    found = {name: Rule(meaning) for name, meaning in MEANINGS["meanings"].items()}
    for kind in _tree(errors.CoilClawError):
        found.setdefault(kind.rule, Rule((kind.__doc__ or "").split("\n")[0], "", kind.__name__))
    for path in sorted(SOURCE.rglob("*.py")):
        if path.name != "__init__.py" and "shipped" not in path.parts:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for name, rule in _search(tree, _assigned(tree.body, {})):
                known = found.setdefault(name, Rule())
                known.meaning = known.meaning or rule.meaning
                known.hint = known.hint or rule.hint
                known.kind = known.kind or rule.kind
    return {name: rule for name, rule in found.items() if rule.meaning and "." in name}


def _search(scope: ast.AST, names: Names) -> Iterator[tuple[str, Rule]]:
    for node in ast.iter_child_nodes(scope):
        inner = names
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = _assigned(ast.walk(node), names)
        elif isinstance(node, ast.Call):
            keywords = {each.arg: each.value for each in node.keywords}
            hint = _template(keywords.pop("hint", None), names)
            parts = [*node.args, *keywords.values()]
            kind = node.func.id if isinstance(node.func, ast.Name) else ""
            yield from _rules_beside(parts, names, hint, kind)
        elif isinstance(node, ast.Tuple | ast.List):
            yield from _rules_beside(node.elts, names)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                parts = value.elts if isinstance(value, ast.Tuple) else [value]
                yield from _rules_beside([key, *parts], names)
        yield from _search(node, inner)


def _rules_beside(
    parts: Sequence[ast.AST | None], names: Names, hint: str = "", kind: str = ""
) -> Iterator[tuple[str, Rule]]:
    """Yield the rules among the parts with the first sentence among them."""
    texts = [_template(part, names) for part in parts]
    meaning = next((text for text in texts if " " in text), "")
    for part in parts:
        choices = [part.body, part.orelse] if isinstance(part, ast.IfExp) else [part]
        for name in (_template(choice, names) for choice in choices):
            if SHAPE.fullmatch(name) and name not in NOT_RULES:
                yield name, Rule(meaning, hint, kind)


def _assigned(nodes: Iterable[ast.AST], outer: Names) -> Names:
    """Return the texts that a scope gives to names, beside those of the scope around it."""
    found = dict(outer)
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=True))
            for name, value in pairs:
                if isinstance(name, ast.Name) and (text := _template(value, {})):
                    found[name.id] = text
    return found


def _template(node: ast.AST | None, names: Names) -> str:
    """Return a text of the source, with names in braces for what is put in; empty for no text."""
    match node:
        case ast.Name(id=name):
            return names.get(name, "")
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(_template(value, names) for value in values)
        case ast.FormattedValue(value=value):
            while isinstance(value, ast.Call) and value.args:
                value = value.args[0]
            shown = getattr(value, "attr", None) or getattr(value, "id", None)
            return f"{{{shown}}}" if shown else "…"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            first, second = _template(left, names), _template(right, names)
            return (first or "…") + (second or "…") if first or second else ""
        case ast.IfExp(body=body, orelse=other):
            return _template(body, names) or _template(other, names)
    return ""


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
