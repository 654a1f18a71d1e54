"""The user's page says what the program does."""

from __future__ import annotations

import json
import re

import pytest

from coilclaw.cli.model_server import dialect, offered_tools, script_file
from coilclaw.cli.model_server.script import Malformed, ModelScript
from tests.support.repository import text

PAGE = text("docs/mock-server.md")
EXAMPLES = re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def _rows() -> set[str]:
    """Return what stands in the first cell of the tables, one by one."""
    cells = re.findall(r"^\| ([^|]+) \|", PAGE, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 4


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_is_a_script(example: str) -> None:
    assert isinstance(script_file.make_script(json.loads(example)), ModelScript)


def known_keys(value: object) -> tuple[str, ...]:
    """Return the keys that are allowed where a script has ``?``."""
    found = script_file.parse_script(json.dumps(value).encode())
    assert isinstance(found, tuple)
    return next(problem.allowed for problem in found if problem.key.endswith('"?"'))


@pytest.mark.parametrize(
    "names",
    [
        known_keys({"answers": [], "?": 1}),
        known_keys([{"text": "x", "?": 1}]),
        known_keys([{"text": "x", "when": {"?": 1}}]),
        tuple(Malformed),
    ],
    ids=["script", "answer", "when", "malformed"],
)
def test_every_field_has_a_row(names: tuple[str, ...]) -> None:
    assert sorted(set(names) - _rows()) == []
    assert len(names) > 5


@pytest.mark.parametrize(
    "names",
    [
        dialect.CONTEXT_PREFIXES,
        offered_tools.SHELL_TOOLS,
        (offered_tools.PATCH_TOOL, *offered_tools.WRITE_TOOLS),
    ],
    ids=["context", "shell", "write"],
)
def test_every_name_that_is_looked_for_is_listed_in_order(names: tuple[str, ...]) -> None:
    words = " ".join(PAGE.split())
    places = [words.find(f"`{name}`") for name in names]
    assert -1 not in places
    start = max(words.rfind(f"`{names[0]}`"), 0)
    in_order = [words.find(f"`{name}`", start) for name in names]
    assert in_order == sorted(in_order)
    assert in_order[0] == start
