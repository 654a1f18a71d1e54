"""Aptix structured patches."""

from __future__ import annotations

import json

import pytest

from coilclaw.changes import answer
from coilclaw.changes.operations import (
    AnswerSource,
    ChangeSet,
    DeleteFile,
    EditText,
    Format,
    Operation,
    Replacement,
    WriteFile,
)
from coilclaw.kernel.errors import AnswerError, PathRefused, UsageError
from coilclaw.kernel.tree_path import TreePath
from tests.support.answer_rendering import render_structured


def path(text: str) -> TreePath:
    return TreePath.parse(text)


def fenced(document: object) -> str:
    return f"Patch:\n```json\n{json.dumps(document, indent=1)}\n```\n"


def entry(**members: object) -> str:
    return fenced({"root": ".", "patches": [{"path": "a", **members}]})


GOOD = {"find": "x", "replace": "y"}


@pytest.mark.parametrize(
    ("text", "rule", "line"),
    [
        (entry(), "patch.replacements", 6),
        (entry(replacements=[]), "patch.replacements", 6),
        (entry(replacements={}), "patch.replacements", 6),
        (entry(replacements="x"), "patch.replacements", 6),
        (entry(replacements=["x"]), "patch.replacement", 8),
        (entry(replacements=[GOOD, {"replace": "y"}]), "patch.replacement", 13),
        (entry(replacements=[{"find": "", "replace": "y"}]), "patch.replacement", 9),
        (entry(replacements=[{"find": 1, "replace": "y"}]), "patch.replacement", 9),
        (entry(replacements=[{"find": "x"}]), "patch.replacement", 9),
        (entry(replacements=[{"find": "x", "replace": None}]), "patch.replacement", 9),
        (entry(replacements=[{**GOOD, "limit": "twice"}]), "patch.replacement", 9),
        (entry(replacements=[{**GOOD, "limit": 1}]), "patch.replacement", 9),
        (entry(replacements=[{**GOOD, "limit": None}]), "patch.replacement", 9),
        (entry(replacements=[{**GOOD, "limit": []}]), "patch.replacement", 9),
        (entry(replacements=[{**GOOD, "regex": True}]), "json.key", 9),
        (entry(replacements=[GOOD], content="whole file"), "json.key", 6),
        (entry(replacements=[GOOD], operation="patch"), "json.key", 6),
        (fenced({"root": 1, "patches": [{"path": "a"}]}), "json.root", 3),
        (fenced({"patches": [{"path": "a", "replacements": [GOOD]}, {}]}), "json.entries", 14),
        (fenced({"patches": [{"path": "a", "replacements": [GOOD]}, "b"]}), "json.entries", 5),
        (fenced({"patches": [{"path": 1}]}), "json.entries", 5),
        (fenced({"root": ".", "patches": {"a": "b"}}), "json.entries", 3),
        (fenced({"root": ".", "patches": [{"file": "b"}]}), "json.entries", 6),
    ],
)
def test_what_is_not_well_formed_refuses(text: str, rule: str, line: int) -> None:
    with pytest.raises(AnswerError) as caught:
        answer.parse_answer(text)
    assert (caught.value.rule, caught.value.line) == (rule, line)


def test_a_refusal_names_replacement_and_path() -> None:
    with pytest.raises(AnswerError) as caught:
        answer.parse_answer(entry(replacements=[GOOD, {"find": ""}]))
    assert caught.value.message == "line 13: replacement 2 of 'a' has no text to find"
    assert caught.value.path == "a"


@pytest.mark.parametrize("root", ["/", "..", "a/../..", "", "~", "C:", ".git", "a\\b"])
def test_a_root_outside_the_tree_is_refused(root: str) -> None:
    document = {"root": root, "patches": [{"path": "a", "replacements": [GOOD]}]}
    with pytest.raises(PathRefused):
        answer.parse_answer(fenced(document))


@pytest.mark.parametrize(
    ("root", "where"), [(".", "a"), ("./", "a"), ("src", "src/a"), ("src/x/", "src/x/a")]
)
def test_paths_are_relative_to_the_root(root: str, where: str) -> None:
    document = {"root": root, "patches": [{"path": "a", "replacements": [GOOD]}]}
    assert answer.parse_answer(fenced(document)) == ChangeSet(
        (EditText(path(where), (Replacement("x", "y"),)),)
    )


def test_entries_replacements_and_limits() -> None:
    document = {
        "patches": [
            {
                "path": "a",
                "replacements": [
                    {"find": "x\n", "replace": ""},
                    {"find": "once", "replace": "1", "limit": "once"},
                    {"find": "all", "replace": "2", "limit": "all"},
                ],
            },
            {"path": "b/c", "replacements": [GOOD]},
        ],
        "comment": "unknown keys of the whole are ignored",
    }
    expected = (
        EditText(
            path("a"),
            (
                Replacement("x\n", ""),
                Replacement("once", "1"),
                Replacement("all", "2", "all"),
            ),
        ),
        EditText(path("b/c"), (Replacement("x", "y"),)),
    )
    found = answer.parse_answer(fenced(document))
    assert found == ChangeSet(expected)
    assert isinstance(found, ChangeSet)
    assert [op.source for op in found.operations] == [
        AnswerSource(Format.PATCH, 5, 0),
        AnswerSource(Format.PATCH, 24, 1),
    ]


@pytest.mark.parametrize(
    "operation",
    [
        WriteFile(path("a"), b"x"),
        DeleteFile(path("a")),
        EditText(path("a"), ()),
        EditText(path("a"), (Replacement("", "x"),)),
        EditText(path("a"), (Replacement("\ud800", "x"),)),
    ],
)
def test_what_a_structured_patch_cannot_say(operation: Operation) -> None:
    with pytest.raises(UsageError) as caught:
        render_structured((operation,))
    assert caught.value.rule == "render.inexpressible"


def test_rendered_text() -> None:
    operation = EditText(path("a"), (Replacement("é`````", "y", "all"),))
    assert render_structured((operation,)) == (
        "``````json\n"
        "{\n"
        '  "root": ".",\n'
        '  "patches": [\n'
        "    {\n"
        '      "path": "a",\n'
        '      "replacements": [\n'
        "        {\n"
        '          "find": "é`````",\n'
        '          "replace": "y",\n'
        '          "limit": "all"\n'
        "        }\n"
        "      ]\n"
        "    }\n"
        "  ]\n"
        "}\n"
        "``````\n"
    )
