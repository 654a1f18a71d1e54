"""Aptix file bundles."""

from __future__ import annotations

import json

import pytest

from coilclaw.changes import answer
from coilclaw.changes.operations import (
    ADDED,
    REMOVED,
    AnswerSource,
    ChangeSet,
    DeleteFile,
    EditText,
    Format,
    Hunk,
    HunkLine,
    Operation,
    PatchFile,
    Replacement,
    WriteFile,
    WriteLink,
)
from coilclaw.kernel.errors import AnswerError, PathRefused, UsageError
from coilclaw.kernel.tree_path import TreePath
from tests.support.answer_rendering import render_bundle


def path(text: str) -> TreePath:
    return TreePath.parse(text)


def fenced(document: object) -> str:
    return f"Bundle:\n```json\n{json.dumps(document, indent=1)}\n```\n"


def entry(**members: object) -> str:
    return fenced({"root": ".", "files": [{"path": "a", **members}]})


def diff(old: str, new: str, *header: str) -> str:
    lines = [f"diff --git a/{old} b/{new}", *header, f"--- a/{old}", f"+++ b/{new}"]
    return "\n".join([*lines, "@@ -1 +1 @@", "-x", "+y", ""])


REPLACEMENTS = [{"find": "x", "replace": "y"}]
HUNK = Hunk((HunkLine(REMOVED, b"x"), HunkLine(ADDED, b"y")), old_start=1, new_start=1)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (entry(), "bundle.entry"),
        (entry(content=None), "bundle.entry"),
        (entry(content=1), "bundle.entry"),
        (entry(content=["x"]), "bundle.entry"),
        (entry(operation="create"), "bundle.entry"),
        (entry(operation="replace"), "bundle.entry"),
        (entry(operation="rename", content="x"), "bundle.entry"),
        (entry(operation="Create", content="x"), "bundle.entry"),
        (entry(operation="", content="x"), "bundle.entry"),
        (entry(operation=None, content="x"), "bundle.entry"),
        (entry(operation=["delete"], content="x"), "bundle.entry"),
        (entry(operation={"a": 1}, content="x"), "bundle.entry"),
        (entry(operation="delete", content="x"), "bundle.entry"),
        (entry(operation="delete", content=[]), "bundle.entry"),
        (entry(operation="delete", content={"a": 1}), "bundle.entry"),
        (entry(operation="delete", replacements=REPLACEMENTS), "bundle.entry"),
        (entry(content="x", replacements=REPLACEMENTS), "bundle.entry"),
        (entry(operation="patch"), "patch.replacements"),
        (entry(operation="patch", replacements=[]), "patch.replacements"),
        (entry(operation="patch", content="x", replacements=REPLACEMENTS), "bundle.entry"),
        (entry(operation="patch", content="", replacements=REPLACEMENTS), "bundle.entry"),
        (entry(operation="gitPatch"), "bundle.entry"),
        (entry(operation="gitPatch", replacements=REPLACEMENTS), "bundle.entry"),
        (entry(operation="gitPatch", content="no diff"), "git.empty"),
        (entry(operation="gitPatch", content=diff("b", "b")), "bundle.gitpatch_path"),
        (entry(operation="gitPatch", content=diff("a/b", "a/b")), "bundle.gitpatch_path"),
        (
            entry(operation="gitPatch", content=diff("a", "a") + diff("b", "b")),
            "bundle.gitpatch_path",
        ),
        (
            entry(operation="gitPatch", content=diff("a", "a") + diff("a", "a")),
            "bundle.gitpatch_path",
        ),
        (
            entry(operation="gitPatch", content=diff("a", "b", "rename from a", "rename to b")),
            "bundle.gitpatch_path",
        ),
        (
            entry(operation="gitPatch", content=diff("b", "a", "copy from b", "copy to a")),
            "bundle.gitpatch_path",
        ),
        (entry(content="eA==", encoding="base64"), "json.key"),
        (entry(content="x", mode="755"), "json.key"),
        (fenced({"root": ".", "files": [{"content": "x"}]}), "json.entries"),
        (fenced({"files": [{"path": "a", "content": "x"}, {"content": "x"}]}), "json.entries"),
        (fenced({"files": [{"path": "a", "content": "x"}, "dist"]}), "json.entries"),
        (fenced({"root": None, "files": [{"path": "a", "content": "x"}]}), "json.root"),
        (fenced({"root": ".", "files": "a"}), "json.entries"),
    ],
)
def test_what_is_not_well_formed_refuses(text: str, rule: str) -> None:
    with pytest.raises(AnswerError) as caught:
        answer.parse_answer(text)
    assert caught.value.rule == rule
    assert caught.value.line is not None


def test_a_refusal_names_line_path_and_key() -> None:
    with pytest.raises(AnswerError) as caught:
        answer.parse_answer(entry(content="eA==", encoding="base64"))
    error = caught.value
    assert error.message == "line 6: the entry for 'a' has an unknown key 'encoding'"
    assert (error.line, error.path) == (6, "a")


def test_a_broken_diff_is_placed_at_its_entry() -> None:
    with pytest.raises(AnswerError) as caught:
        answer.parse_answer(entry(operation="gitPatch", content="diff --git a/a b/a\nnonsense\n"))
    assert caught.value.line == 6
    assert caught.value.message == (
        "line 6: the diff of 'a' cannot be read, line 2: 'nonsense' is not part of a patch"
    )


@pytest.mark.parametrize("name", ["/a", "../a", "a/../../b", ".git/x", "a\\b", "C:/a", "a\nb", ""])
def test_bad_paths_are_refused_as_paths(name: str) -> None:
    with pytest.raises(PathRefused):
        answer.parse_answer(fenced({"files": [{"path": name, "content": "x"}]}))


@pytest.mark.parametrize("root", ["/", "/tmp", "..", "a/../..", "", "~", "C:", ".git", "a\\b"])
def test_a_root_outside_the_tree_is_refused(root: str) -> None:
    with pytest.raises(PathRefused):
        answer.parse_answer(fenced({"root": root, "files": [{"path": "a", "content": "x"}]}))


@pytest.mark.parametrize(
    ("members", "operation"),
    [
        ({"content": "x"}, WriteFile(path("a"), b"x")),
        ({"content": ""}, WriteFile(path("a"), b"")),
        ({"content": "é\r\n\0"}, WriteFile(path("a"), "é\r\n\0".encode())),
        ({"content": "\ufeffx"}, WriteFile(path("a"), b"\xef\xbb\xbfx")),
        ({"content": "x", "replacements": None}, WriteFile(path("a"), b"x")),
        ({"operation": "replace", "content": "x"}, WriteFile(path("a"), b"x")),
        ({"operation": "create", "content": "x"}, WriteFile(path("a"), b"x", new=True)),
        ({"operation": "delete"}, DeleteFile(path("a"))),
        ({"operation": "delete", "content": None}, DeleteFile(path("a"))),
        ({"operation": "delete", "content": ""}, DeleteFile(path("a"))),
        (
            {"operation": "patch", "replacements": REPLACEMENTS},
            EditText(path("a"), (Replacement("x", "y"),)),
        ),
        (
            {"operation": "patch", "content": None, "replacements": REPLACEMENTS},
            EditText(path("a"), (Replacement("x", "y"),)),
        ),
        (
            {"operation": "gitPatch", "content": diff("a", "a")},
            PatchFile(path("a"), (HUNK,)),
        ),
    ],
)
def test_operations(members: dict[str, object], operation: Operation) -> None:
    assert answer.parse_answer(entry(**members)) == ChangeSet((operation,))


def test_everything_is_relative_to_the_root_also_the_paths_of_a_diff() -> None:
    document = {
        "root": "sub/dir",
        "files": [
            {"path": "x", "content": "1"},
            {"path": "y", "operation": "delete"},
            {"path": "a", "operation": "gitPatch", "content": diff("a", "a")},
        ],
    }
    found = answer.parse_answer(fenced(document))
    assert found == ChangeSet(
        (
            WriteFile(path("sub/dir/x"), b"1"),
            DeleteFile(path("sub/dir/y")),
            PatchFile(path("sub/dir/a"), (HUNK,)),
        )
    )
    assert isinstance(found, ChangeSet)
    patch = found.operations[2]
    assert isinstance(patch, PatchFile)
    assert patch.source == patch.hunks[0].source == AnswerSource(Format.BUNDLE, 14, 2)


def test_files_and_patches_of_one_object_are_one_change_set() -> None:
    document = {
        "files": [{"path": "a", "content": "1"}],
        "patches": [{"path": "b", "replacements": REPLACEMENTS}],
    }
    expected = ChangeSet(
        (WriteFile(path("a"), b"1"), EditText(path("b"), (Replacement("x", "y"),)))
    )
    assert answer.parse_answer(fenced(document)) == expected
    assert answer.parse_answer(fenced(document), format=Format.BUNDLE) == expected
    assert answer.parse_answer(fenced(document), format=Format.PATCH) == expected


MOVED = PatchFile(path("a"), (HUNK,), target=path("b"))


@pytest.mark.parametrize(
    "operation",
    [
        WriteFile(path("a"), b"\xff"),
        WriteFile(path("a"), b"x", executable=True),
        MOVED,
        EditText(path("a"), ()),
    ],
)
def test_what_a_bundle_cannot_say(operation: Operation) -> None:
    with pytest.raises(UsageError) as caught:
        render_bundle((operation,))
    assert caught.value.rule == "render.inexpressible"


@pytest.mark.parametrize(
    "operation",
    [
        WriteFile(path("a"), b"x\n", new=True, executable=True),
        DeleteFile(path("a"), b"x\n"),
        PatchFile(path("a"), (HUNK,)),
        PatchFile(path("a"), (), old_executable=False, executable=True),
    ],
)
def test_what_only_a_diff_can_say_is_written_as_one(operation: Operation) -> None:
    text = render_bundle((operation,))
    assert '"operation": "gitPatch"' in text
    assert answer.parse_answer(text) == ChangeSet((operation,))


def test_a_link_is_written_as_a_diff_that_is_refused_unless_links_are_permitted() -> None:
    text = render_bundle((WriteLink(path("a"), b"b"),))
    with pytest.raises(AnswerError) as caught:
        answer.parse_answer(text)
    assert caught.value.rule == "git.link"


def test_rendered_text() -> None:
    operations = (
        WriteFile(path("a"), "é\n".encode(), new=True),
        WriteFile(path("b"), b""),
        DeleteFile(path("c")),
    )
    assert render_bundle(operations) == (
        "```json\n"
        "{\n"
        '  "root": ".",\n'
        '  "files": [\n'
        "    {\n"
        '      "path": "a",\n'
        '      "operation": "create",\n'
        '      "content": "é\\n"\n'
        "    },\n"
        "    {\n"
        '      "path": "b",\n'
        '      "content": ""\n'
        "    },\n"
        "    {\n"
        '      "path": "c",\n'
        '      "operation": "delete"\n'
        "    }\n"
        "  ]\n"
        "}\n"
        "```\n"
    )
