"""Change sets as answers, one format at a time."""

from __future__ import annotations

import pytest

from coilclaw.changes import answer
from coilclaw.changes.operations import (
    ADDED,
    CONTEXT,
    REMOVED,
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
)
from coilclaw.kernel.errors import UsageError
from coilclaw.kernel.tree_path import TreePath
from tests.support.answer_rendering import render

A = TreePath(("a",))
NEW = WriteFile(A, b"x\n", new=True)
LINES = (HunkLine(REMOVED, b"x"), HunkLine(ADDED, b"y"))


@pytest.mark.parametrize("form", list(Format))
def test_an_empty_change_set_has_no_answer(form: Format) -> None:
    with pytest.raises(UsageError) as caught:
        render(ChangeSet(()), form)
    assert caught.value.rule == "render.inexpressible"


@pytest.mark.parametrize(
    ("form", "operation"),
    [
        (Format.FENCE, NEW),
        (Format.BUNDLE, WriteFile(A, b"\xff")),
        (Format.PATCH, NEW),
        (Format.GIT, EditText(A, (Replacement("x", "y"),))),
        (Format.GIT, WriteFile(A, b"\xff\n", new=True)),
        (Format.GIT, WriteFile(A, b"\0\n", new=True)),
        (Format.ENVELOPE, EditText(A, (Replacement("x", "y"),))),
        (Format.ENVELOPE, WriteFile(A, b"\xff\n", new=True)),
        (Format.BLOCKS, DeleteFile(A)),
        (Format.BLOCKS, WriteFile(A, b"\0\n", new=True)),
    ],
)
def test_what_a_format_cannot_say_refuses(form: Format, operation: Operation) -> None:
    with pytest.raises(UsageError) as caught:
        render(ChangeSet((operation,)), form)
    assert caught.value.rule == "render.inexpressible"


@pytest.mark.parametrize(
    ("form", "operation"),
    [
        (Format.FENCE, WriteFile(A, b"x\n")),
        (Format.BUNDLE, NEW),
        (Format.PATCH, EditText(A, (Replacement("x", "y"),))),
        (Format.GIT, NEW),
        (Format.ENVELOPE, NEW),
        (Format.BLOCKS, NEW),
        (Format.BLOCKS, PatchFile(A, (Hunk(LINES),))),
    ],
)
def test_what_is_rendered_reads_back(form: Format, operation: Operation) -> None:
    wanted = ChangeSet((operation,))
    text = render(wanted, form)
    assert answer.parse_answer(text) == wanted
    assert answer.parse_answer(text, format=form) == wanted
    assert answer.parse_answer(f"Dear user,\n\n{text}\nDone.\n") == wanted
    assert answer.parse_answer(text.replace("\n", "\r\n")) == wanted


def test_a_git_patch_stands_in_a_code_block() -> None:
    text = render(ChangeSet((NEW,)), Format.GIT)
    assert text.startswith("```patch\ndiff --git a/a b/a\n")
    assert text.endswith("\n+x\n```\n")


def test_the_code_block_of_a_git_patch_is_longer_than_what_looks_like_its_end() -> None:
    hunk = Hunk((HunkLine(CONTEXT, b"````"), HunkLine(ADDED, b"```")), old_start=1, new_start=1)
    wanted = ChangeSet((PatchFile(A, (hunk,)),))
    text = render(wanted, Format.GIT)
    assert text.startswith("`````patch\n")
    assert answer.parse_answer(text) == wanted


def test_the_content_of_one_format_may_be_the_text_of_another() -> None:
    inner = render(ChangeSet((WriteFile(A, b"x\n"),)), Format.FENCE)
    for form in (Format.BUNDLE, Format.GIT, Format.ENVELOPE, Format.BLOCKS):
        wanted = ChangeSet((WriteFile(A, inner.encode(), new=True),))
        inner = render(wanted, form)
        assert answer.parse_answer(inner) == wanted
