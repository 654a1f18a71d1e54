"""The worked examples of docs/extending.md: each is put into a copy of the product and tried."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.children import PATIENCE_S
from tests.support.repository import PACKAGE, ROOT

PAGE = ROOT / "docs" / "extending.md"
_BLOCK = re.compile(
    r"^(?:`(?P<name>[^`\n]+)`:?\n\n)?```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass
class Example:
    """One section: files that are added, files that are edited, and commands with their output."""

    title: str
    added: dict[str, str] = field(default_factory=dict)
    edited: list[tuple[str, str]] = field(default_factory=list)
    commands: list[tuple[str, str]] = field(default_factory=list)


def read_examples(text: str) -> list[Example]:
    """Read the sections of the page that hold commands."""
    found = []
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        example = Example(section.partition("\n")[0])
        for block in _BLOCK.finditer(section):
            name, body = block["name"], block["text"]
            if block["kind"] == "diff":
                example.edited.append((name, body))
            elif block["kind"] == "sh":
                example.commands.append((body, ""))
            elif block["kind"] == "text" and example.commands:
                example.commands[-1] = (example.commands[-1][0], body)
            elif name:
                example.added[name] = body
        if example.commands:
            found.append(example)
    return found


def edit(text: str, change: str) -> str:
    """Apply the lines of a diff block; what it shows of the file has to be there once."""
    lines = change.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if not line.startswith("+"))
    after = "".join(line[1:] for line in lines if not line.startswith("-"))
    assert text.count(before) == 1, f"{text.count(before)} times in the file:\n{before}"
    return text.replace(before, after)


EXAMPLES = read_examples(PAGE.read_text(encoding="utf-8"))


def test_there_is_an_example_of_every_kind() -> None:
    titles = " ".join(example.title for example in EXAMPLES)
    wanted = ("model service", "answer format", "agent", "tool", "gate", "endpoint", "environment")
    assert [word for word in wanted if word not in titles] == []


def test_an_edit_whose_lines_are_not_in_the_file_is_refused() -> None:
    assert edit("a\nb\n", " a\n+c\n") == "a\nc\nb\n"
    with pytest.raises(AssertionError, match="0 times"):
        edit("a\nb\n", " x\n+c\n")


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.title)
def test_the_example_works(example: Example, tmp_path: Path) -> None:
    source = tmp_path / "checkout" / "src"
    checkout, unwanted = source.parent, shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, source / "coilclaw", symlinks=True, ignore=unwanted)
    for name in ("contracts", "environments", "policies", "schemas", "scripts"):
        shutil.copytree(ROOT / name, checkout / name, ignore=unwanted)
    for name, text in example.added.items():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(text, encoding="utf-8")
    for name, change in example.edited:
        path = checkout / name
        path.write_text(edit(path.read_text(encoding="utf-8"), change), encoding="utf-8")
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "coilclaw"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m coilclaw "$@"\n')
    program.chmod(0o755)
    environ = {
        "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "COILCLAW_HOME": str(tmp_path / "home"),
        "PYTHONPATH": str(source),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    for script, wanted in example.commands:
        done = subprocess.run(
            ["bash", "-euc", script],
            cwd=checkout,
            env=environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, wanted), done.stderr
