"""Count what the ratchet bounds: code lines of packages, breaches of the rules for names and prose.

``python -m tests.support.house_rules`` prints the counts, ``--write`` writes them as the budget,
and ``--list RULE`` lists what a rule found.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from tests.support.pages import TOP, pages
from tests.support.repository import PACKAGE, ROOT, Module, modules

BUDGET = ROOT / "tests" / "architecture" / "budget.toml"
SMALL_MODULE_LINES = 40

_LAYOUT = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE}
    | {tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)
_SCOPES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# Words that only look like a gerund, or like two words.
_NOUNS = frozenset({"string", "thing", "ring", "king", "pricing", "landing", "authoring"})
_COMPOUNDS = frozenset(
    {"baseline", "changelog", "checkpoint", "checkpoints", "codecommit", "endpoint", "endpoints"}
    | {"database", "gateway", "lifetime", "openapi", "opencode", "output", "rollback", "rollout"}
    | {"runtime", "snapshot", "timeline", "toolchain", "workspace", "worktree"}
)
_PARTICIPLES = frozenset(
    {"told", "shown", "given", "taken", "found", "held", "kept", "said", "made", "known", "written"}
    | {"sent", "left", "gone", "begun", "done", "drawn", "hidden", "chosen", "seen", "built"}
    | {"whole", "below", "above", "beside", "within", "anew", "away", "apart"}
)
_VERBS = frozenset({"apply", "embed", "exceed", "feed", "need", "proceed", "reply", "supply"})
_CODE = re.compile(r"```.*?```|``[^`]+``|`[^`]*`", re.DOTALL)
_PHRASES = re.compile(
    r"(?<!there )\b(?:is|are|was|were) no (?!longer|more\b)[A-Za-z]+"
    r"|\b(?:some|any|no)body\b|\bwhoever\b|\b(?:go|goes|going|went) on with\b|\bin trouble\b",
    re.IGNORECASE,
)


def docstring_lines(tree: ast.Module) -> set[int]:
    """Return the lines that docstrings take."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, _SCOPES) and node.body and isinstance(node.body[0], ast.Expr):
            value = node.body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                found.update(range(value.lineno, (value.end_lineno or value.lineno) + 1))
    return found


def count_code_lines(source: str) -> int:
    """Count the lines that hold code: no blank line, no comment, no docstring."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstring_lines(ast.parse(source)))


def package_of(module: Module) -> str:
    """Return the package that a module counts for; modules at the top count as ``coilclaw``."""
    parts = module.name.split(".")
    return parts[1] if len(parts) > 2 or (module.is_package and len(parts) == 2) else "coilclaw"


def code_lines() -> dict[str, int]:
    """Count the code lines of every package."""
    found: Counter[str] = Counter()
    for module in ours():
        found[package_of(module)] += count_code_lines(module.path.read_text(encoding="utf-8"))
    return dict(sorted(found.items()))


def ours() -> Iterator[Module]:
    """Yield the modules of the product, without the environments that it ships as data."""
    return (module for module in modules() if "shipped" not in module.path.parts)


def stems() -> Iterator[tuple[str, str]]:
    """Yield the last name of each module with its dotted name."""
    return ((m.name.rpartition(".")[2], m.name) for m in ours() if not m.name.endswith("__main__"))


def is_gerund(stem: str) -> bool:
    """Tell whether a module is named after an activity instead of a thing."""
    last = stem.rpartition("_")[2]
    return last.endswith("ing") and last not in _NOUNS


def is_run_together(word: str, words: Iterable[str]) -> bool:
    """Tell whether a word is two of the known words without an underscore between them."""
    known = words if isinstance(words, frozenset | set) else set(words)
    cuts = range(3, len(word) - 2)
    return word not in _COMPOUNDS and any(word[:n] in known and word[n:] in known for n in cuts)


def gerund_modules() -> list[str]:
    """Find modules named after an activity."""
    return [name for stem, name in stems() if is_gerund(stem)]


def run_together_modules() -> list[str]:
    """Find modules whose name is two words without an underscore."""
    words = _identifier_words()
    return [
        name for stem, name in stems() if any(is_run_together(p, words) for p in stem.split("_"))
    ]


def _identifier_words() -> frozenset[str]:
    """Return the words that names of variables and functions are made of, each used in three."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for module in ours():
        for node in ast.walk(module.tree):
            name = node.id if isinstance(node, ast.Name) else getattr(node, "name", None)
            if isinstance(name, str) and "_" in name.strip("_"):
                for word in name.lower().strip("_").split("_"):
                    found[word].add(name)
    return frozenset(w for w, names in found.items() if len(w) >= 3 and len(names) >= 3)


def ambiguous_classes() -> list[str]:
    """Find public class names that stand for several things."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for module in ours():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(module.name)
    return [
        f"{name}: {', '.join(where)}" for name, where in sorted(found.items()) if len(where) > 1
    ]


def small_modules() -> list[str]:
    """Find modules of fewer than 40 lines of code that only one other module imports."""
    importers: defaultdict[str, set[str]] = defaultdict(set)
    names = {module.name for module in ours()}
    for module in ours():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    importers[whole if whole in names else node.module].add(module.name)
    return [
        m.name
        for m in ours()
        if not m.is_package
        and len(importers[m.name]) == 1
        and count_code_lines(m.path.read_text(encoding="utf-8")) < SMALL_MODULE_LINES
    ]


def forbidden_phrases() -> list[str]:
    """Find phrases that the rules for prose forbid, in the product's texts and its documents."""
    found = []
    for module in ours():
        for node in ast.walk(module.tree):
            # A single word is a value of a record or the name of a rule, not prose.
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                found += [
                    f"{module.name}:{node.lineno}: {match[0]}"
                    for match in _PHRASES.finditer(_CODE.sub("", node.value))
                ]
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")):
        if page.name != "CHANGELOG.md":
            prose = _CODE.sub("", page.read_text(encoding="utf-8"))
            found += [f"{page.name}: {match[0]}" for match in _PHRASES.finditer(prose)]
    return found


def is_participle(name: str) -> bool:
    """Tell whether a function is named by a bare participle or adverb instead of a verb."""
    word = name.strip("_")
    ending = word.endswith(("ed", "ly")) and "_" not in word and word not in _VERBS
    return ending or word in _PARTICIPLES


def participle_functions() -> list[str]:
    """Find functions that are named after a result instead of what they do."""
    return [
        f"{module.name}:{node.lineno}: {node.name}"
        for module in ours()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and is_participle(node.name)
        and not any(ast.unparse(each).endswith("property") for each in node.decorator_list)
    ]


def exported_names() -> list[str]:
    """List the names that packages offer to each other."""
    return [f"{TOP}.{page.package}.{name}" for page in pages() for name in page.offered]


RULES: Mapping[str, Callable[[], list[str]]] = {
    "ambiguous_classes": ambiguous_classes,
    "exported_names": exported_names,
    "forbidden_phrases": forbidden_phrases,
    "gerund_modules": gerund_modules,
    "participle_functions": participle_functions,
    "run_together_modules": run_together_modules,
    "small_modules": small_modules,
}


def read_budget(path: Path = BUDGET) -> dict[str, dict[str, int]]:
    """Return the tables ``code_lines`` and ``breaches`` of the budget."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def counts() -> dict[str, dict[str, int]]:
    """Count everything that has a budget."""
    breaches = {rule: len(find()) for rule, find in RULES.items()}
    return {"code_lines": code_lines(), "breaches": breaches}


def write_budget(found: Mapping[str, Mapping[str, int]]) -> None:
    """Write the budget file."""
    head = BUDGET.read_text(encoding="utf-8").split("\n[")[0] if BUDGET.exists() else ""
    text = head.rstrip("\n") + "\n"
    for table, values in found.items():
        text += f"\n[{table}]\n" + "".join(f"{key} = {value}\n" for key, value in values.items())
    BUDGET.write_text(text, encoding="utf-8")


def main() -> int:
    """Print, write or list."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the counts as the budget")
    parser.add_argument("--list", choices=sorted(RULES), help="list what a rule found")
    options = parser.parse_args()
    if options.list:
        print(*RULES[options.list](), sep="\n")
        return 0
    found = counts()
    for table, values in found.items():
        print(f"[{table}]", *(f"{key} = {value}" for key, value in values.items()), sep="\n")
    print(f"total: {sum(found['code_lines'].values())} code lines in {PACKAGE}")
    if options.write:
        write_budget(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
