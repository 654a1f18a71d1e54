"""What the documents say is so: links lead somewhere, commands parse, evidence exists."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import coilclaw
from coilclaw.cli.parser import build_parser
from tests.support.repository import PACKAGE, ROOT, files, modules, text

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[ ]*([\w-]*)")
_LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")
_SHELLS = frozenset({"sh", "bash", "shell", "console"})
_OPERATOR = re.compile(r"^[;&|()<>]+$")


def _documents() -> list[str]:
    return [name for name in files() if name.endswith(".md") and not name.startswith("tests/")]


def _blocks(markdown: str) -> Iterator[tuple[str | None, str]]:
    """Yield the text outside code with None, and each fenced block with its language."""
    fence, language, lines = "", None, list[str]()
    for line in markdown.splitlines():
        opener = _FENCE.match(line)
        closes = fence and opener and opener[1].startswith(fence) and not opener[2]
        if closes or (opener and not fence):
            yield language, "\n".join(lines)
            lines = []
            fence, language = ("", None) if closes or not opener else (opener[1], opener[2])
        else:
            lines.append(line)
    yield language, "\n".join(lines)


def _prose(markdown: str) -> str:
    return "\n".join(block for language, block in _blocks(markdown) if language is None)


def _anchors(markdown: str) -> set[str]:
    """Return the anchors that headings get when the document is shown."""
    headings = (_HEADING.match(line) for line in _prose(markdown).splitlines())
    kept = (re.sub(r"[^\w\- ]", "", heading[1].lower()) for heading in headings if heading)
    return {heading.strip().replace(" ", "-") for heading in kept}


def _dead_links(document: Path, markdown: str) -> list[str]:
    """Return the relative links that lead nowhere."""
    dead = []
    for target in _LINK.findall(re.sub(r"`[^`\n]*`", "", _prose(markdown))):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        name, _, anchor = target.partition("#")
        path = document.parent / name if name else document
        if not path.exists():
            dead.append(target)
        elif anchor and path.suffix == ".md":
            there = path.read_text(encoding="utf-8") if name else markdown
            if anchor not in _anchors(there):
                dead.append(target)
    return dead


def _shell_lines(markdown: str) -> Iterator[str]:
    """Yield the commands of the fenced shell blocks, continued lines joined."""
    for language, block in _blocks(markdown):
        if language not in _SHELLS:
            continue
        until = None
        for line in block.replace("\\\n", " ").splitlines():
            if until is not None:
                until = None if line.strip() == until else until
                continue
            if language == "console" and not line.startswith("$ "):
                continue
            here = re.search(r"<<-?\s*['\"]?(\w+)", line)
            until = here[1] if here else None
            yield line.removeprefix("$ ")


def _product_commands(markdown: str) -> list[list[str]]:
    """Return the arguments of every call of the product that the document shows."""
    found = []
    for line in _shell_lines(markdown):
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.commenters = "#"
        command: list[str] = []
        redirected = False
        for word in [*lexer, ";"]:
            if redirected or (_OPERATOR.match(word) and set(word) & set("<>")):
                redirected = not redirected
            elif not _OPERATOR.match(word):
                command.append(word)
            else:
                while command and re.match(r"^\w+=", command[0]):
                    del command[0]
                if command and re.search(r"(^|/)(coilclaw|run\.sh)$", command[0]):
                    found.append(command[1:])
                command = []
    return found


def _table_rows(markdown: str) -> Iterator[dict[str, str]]:
    """Yield the rows of the tables in the text, by column."""
    columns: list[str] = []
    for line in _prose(markdown).splitlines():
        if not line.startswith("|"):
            columns = []
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
        if not columns:
            columns = [cell.lower() for cell in cells]
        elif not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
            yield dict(zip(columns, cells, strict=True))


def _missing_evidence(cell: str, root: Path) -> list[str]:
    """Return the files and tests that a cell names and that do not exist; an empty cell is one."""
    if cell == "—":
        return []
    references = [name for name in re.findall(r"`([^`]+)`", cell) if "/" in name]
    missing = [] if references else [f"no file is named in {cell!r}"]
    for reference in references:
        name, *inside = reference.split("::")
        path = root / name
        if not path.exists():
            missing.append(reference)
        elif inside:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            names = {getattr(node, "name", None) for node in ast.walk(tree)}
            missing += (
                [reference] if not {part.partition("[")[0] for part in inside} <= names else []
            )
    return missing


def test_dead_links_are_found_and_live_ones_are_not(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# A `thing`, twice\n", encoding="utf-8")
    markdown = (
        "[a](gone.md) [b](there.md#nothing) [c](#here) ![d](gone.png)\n"
        "[e](there.md) [f](there.md#a-thing-twice) [g](https://example.org/x) `[h](code.md)`\n"
        "```text\n[i](fenced.md)\n```\n"
    )
    dead = _dead_links(tmp_path / "this.md", markdown)
    assert dead == ["gone.md", "there.md#nothing", "#here", "gone.png"]


def test_commands_are_found_in_shell_blocks_only() -> None:
    markdown = (
        "coilclaw prose\n```text\ncoilclaw synopsis [X]\n```\n"
        "```sh\ncat a | coilclaw apply - --root 'b c' > out   # why\n"
        "X=1 ./scripts/run.sh demo \\\n  deliver && coilclaw undo\n"
        "coilclaw apply <<'END'\ncoilclaw inside\nEND\nls\n```\n"
        "```console\n$ coilclaw doctor\ncoilclaw output\n```\n"
    )
    assert _product_commands(markdown) == [
        ["apply", "-", "--root", "b c"],
        ["demo", "deliver"],
        ["undo"],
        ["apply"],
        ["doctor"],
    ]


def test_missing_evidence_is_found(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("def test_x(): ...\n", encoding="utf-8")
    assert _missing_evidence("`tests/test_a.py::test_x`, `tests/test_a.py`", tmp_path) == []
    assert _missing_evidence("`tests/test_a.py::test_y`", tmp_path) == ["tests/test_a.py::test_y"]
    assert _missing_evidence("`tests/test_b.py`", tmp_path) == ["tests/test_b.py"]
    assert _missing_evidence("later", tmp_path) == ["no file is named in 'later'"]


@pytest.mark.parametrize("name", _documents())
def test_every_relative_link_leads_somewhere(name: str) -> None:
    assert _dead_links(ROOT / name, text(name)) == []


def _parses(arguments: list[str]) -> bool:
    """Tell whether the product understands the arguments; ``--help`` ends well, too."""
    try:
        build_parser().parse_args(arguments)
    except SystemExit as stop:
        return stop.code == 0
    return True


def test_a_command_that_does_not_exist_is_found() -> None:
    assert not _parses(["apply", "--no-such-option"])
    assert _parses(["apply", "--help"])


@pytest.mark.parametrize("name", _documents())
def test_every_command_shown_parses(name: str) -> None:
    commands = _product_commands(text(name))
    assert [arguments for arguments in commands if not _parses(arguments)] == []


def test_the_changelog_has_room_for_what_comes_next() -> None:
    assert re.search(r"^## \[?Unreleased\]?", text("CHANGELOG.md"), re.MULTILINE)


def test_every_row_of_the_conformance_tables_points_at_code_and_tests_that_exist() -> None:
    rows = list(_table_rows(text("docs/conformance.md")))
    assert rows
    assert [row for row in rows if not {"requirement", "code", "test"} <= set(row)] == []
    missing = {
        row["requirement"]: found
        for row in rows
        if (found := [x for c in ("code", "test") for x in _missing_evidence(row[c], ROOT)])
    }
    assert missing == {}


def test_the_architecture_document_lists_the_packages_that_exist() -> None:
    rows = [row for row in _table_rows(text("docs/architecture.md")) if "package" in row]
    listed = {row["package"].strip("`") for row in rows}
    assert listed == {m.package for m in modules()} - {"", "__main__", "pages", "environments"}


def test_every_library_has_a_reason() -> None:
    project = tomllib.loads(text("pyproject.toml"))["project"]
    named = {re.split(r"[>=<;\[ ]", requirement)[0] for requirement in project["dependencies"]}
    rows = [row for row in _table_rows(text("docs/adr/0006-libraries.md")) if "library" in row]
    assert {row["library"].strip("`") for row in rows} == named
    assert [row["library"] for row in rows if not row["instead of"] or not row["licence"]] == []


def test_the_architecture_document_draws_the_import_rule_as_it_is() -> None:
    project = tomllib.loads(text("pyproject.toml"))
    (layers,) = (c["layers"] for c in project["tool"]["importlinter"]["contracts"] if "layers" in c)
    drawn = "\n".join(layer.replace("(", "").replace(")", "") for layer in layers)
    assert ("text", drawn) in list(_blocks(text("docs/architecture.md")))


def test_the_version_is_said_once() -> None:
    project = tomllib.loads(text("pyproject.toml"))
    assert "version" not in project["project"]
    assert project["project"]["dynamic"] == ["version"]
    path = ROOT / project["tool"]["hatch"]["version"]["path"]
    assert path == PACKAGE / "__init__.py"
    assert importlib.metadata.version("coilclaw") == coilclaw.__version__
