"""The user's page says what the program does."""

from __future__ import annotations

import json
import re

import pytest

from coilclaw.modelserver import answerfields, history, offered, scriptfile
from coilclaw.modelserver.script import Malformed, Script
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
    assert isinstance(scriptfile.script_of(json.loads(example)), Script)


@pytest.mark.parametrize(
    "names",
    [
        scriptfile.SCRIPT_FIELDS,
        answerfields.ANSWER_FIELDS,
        answerfields.WHEN_FIELDS,
        frozenset(Malformed),
    ],
    ids=["script", "answer", "when", "malformed"],
)
def test_every_field_has_a_row(names: frozenset[str]) -> None:
    assert sorted(names - _rows()) == []


@pytest.mark.parametrize(
    "names",
    [
        history.CONTEXT_PREFIXES,
        offered.SHELL_TOOLS,
        (offered.PATCH_TOOL, *offered.WRITE_TOOLS),
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
