"""``^^^`` fences, one block at a time."""

from __future__ import annotations

import pytest

from coilclaw.changes import answer
from coilclaw.changes.operations import (
    Answer,
    AnswerSource,
    ChangeSet,
    DeleteFile,
    EditText,
    Format,
    NoChanges,
    Operation,
    PatchFile,
    Replacement,
    WriteFile,
    WriteLink,
)
from coilclaw.kernel.errors import AnswerError, PathRefused, UsageError
from coilclaw.kernel.tree_path import TreePath
from tests.support.answer_rendering import render_fence


def path(text: str) -> TreePath:
    return TreePath.parse(text)


def parse(text: str) -> Answer:
    return answer.parse_answer(text, format=Format.FENCE)


@pytest.mark.parametrize(
    ("text", "rule", "line"),
    [
        ("^^^a", "fence.unclosed", 1),
        ("^^^a\n", "fence.unclosed", 1),
        ("text\n^^^a\ncontent\n", "fence.unclosed", 2),
        ("^^^a\nx\n^^^end\n^^^b\ny\n", "fence.unclosed", 4),
        ("^^^a\nx\n^^^b\ny\n^^^end\n", "fence.nested", 3),
        ("^^^a\n^^^b\n^^^end\n", "fence.nested", 2),
        ("^^^a\nx\n^^^\n^^^end\n", "fence.nested", 3),
        ("^^^a\nx\n^^^^\n^^^end\n", "fence.nested", 3),
        ("^^^a\nx\n^^^End\n", "fence.nested", 3),
        ("^^^a\nx\n^^^ end\n", "fence.nested", 3),
        ("^^^a\nx\n^^^end.\n", "fence.nested", 3),
        ("^^^a\nx\n^^^delete\n", "fence.delete", 3),
        ("^^^a\n\n^^^delete\n", "fence.delete", 3),
        ("x\n^^^end\n", "fence.stray", 2),
        ("^^^delete\n", "fence.stray", 1),
        ("^^^a\nx\n^^^end\n^^^end\n", "fence.stray", 4),
        ("^^^\n", "fence.opener", 1),
        ("^^^ a\nx\n^^^end\n", "fence.opener", 1),
        ("^^^\ta\nx\n^^^end\n", "fence.opener", 1),
        ("x = 1\n^^^^^\n", "fence.opener", 2),
    ],
)
def test_what_is_not_well_formed_refuses(text: str, rule: str, line: int) -> None:
    with pytest.raises(AnswerError) as caught:
        parse(text)
    assert (caught.value.rule, caught.value.line) == (rule, line)
    assert caught.value.message.startswith(f"line {line}: ")


def test_a_refusal_names_the_path_of_the_block() -> None:
    with pytest.raises(AnswerError) as caught:
        parse("^^^src/a.py\nx\n")
    assert caught.value.path == "src/a.py"
    assert caught.value.message == "line 1: the ^^^ block of 'src/a.py' has no ^^^end"


@pytest.mark.parametrize("name", ["/etc/passwd", "../a", "a/../b", ".git/config", "a\\b", "C:a"])
def test_bad_paths_are_refused_as_paths(name: str) -> None:
    with pytest.raises(PathRefused) as caught:
        parse(f"^^^{name}\nx\n^^^end\n")
    assert caught.value.path == name


@pytest.mark.parametrize(
    ("text", "operation"),
    [
        ("^^^a\nx\ny\n^^^end\n", WriteFile(path("a"), b"x\ny\n")),
        ("^^^a\nx\n^^^end", WriteFile(path("a"), b"x\n")),
        ("^^^a\n^^^end\n", WriteFile(path("a"), b"")),
        ("^^^a\n\n^^^end\n", WriteFile(path("a"), b"\n")),
        ("^^^a\n^^^delete\n", DeleteFile(path("a"))),
        ("^^^a \t\nx\n^^^end \t\n", WriteFile(path("a"), b"x\n")),
        ("^^^a\n^^^delete  \n", DeleteFile(path("a"))),
        ("^^^my file.txt\nx\n^^^end\n", WriteFile(path("my file.txt"), b"x\n")),
        ("^^^end.txt\nx\n^^^end\n", WriteFile(path("end.txt"), b"x\n")),
        ("^^^./end\nx\n^^^end\n", WriteFile(path("end"), b"x\n")),
        ("^^^a\n ^^^end\n^^end\n^^^end\n", WriteFile(path("a"), b" ^^^end\n^^end\n")),
        ("^^^a\nx\r\ny\n^^^end\n", WriteFile(path("a"), b"x\r\ny\n")),
        ("^^^a\r\nx\ny\r\n^^^end\r\n", WriteFile(path("a"), b"x\ny\r\n")),
        ("^^^a\r\nx\r\n^^^end\r\n", WriteFile(path("a"), b"x\n")),
        ("^^^a\né\u2028\x0c\x85z\n^^^end\n", WriteFile(path("a"), "é\u2028\x0c\x85z\n".encode())),
        ("^^^a\n```json\n{\n```\n^^^end\n", WriteFile(path("a"), b"```json\n{\n```\n")),
    ],
)
def test_blocks(text: str, operation: Operation) -> None:
    assert parse(text) == ChangeSet((operation,))


def test_prose_and_code_fences_around_blocks_are_ignored() -> None:
    text = "Here:\n```rust\n^^^a\nx\n^^^end\n```\n and ^^^end\n~~~\n^^^b\n^^^delete\nno more"
    assert parse(text) == ChangeSet((WriteFile(path("a"), b"x\n"), DeleteFile(path("b"))))


def test_without_blocks_there_are_no_changes() -> None:
    assert parse("nothing ^^^a\n ^^^^^ here\n ^^^end, or so\n") == NoChanges()


def test_the_source_says_where_the_block_stands() -> None:
    found = parse("a\nb\n^^^c\n^^^delete\n")
    assert isinstance(found, ChangeSet)
    assert found.operations[0].source == AnswerSource(Format.FENCE, 3)


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        (WriteFile(path("a"), b"x"), "final newline"),
        (WriteFile(path("a"), b"^^^x\n"), "begins with ^^^"),
        (WriteFile(path("a"), b"a\n^^^end\n"), "begins with ^^^"),
        (WriteFile(path("a"), b"\xff\n"), "UTF-8"),
        (WriteFile(path("a"), b"\0\n"), "NUL"),
        (WriteFile(path("a"), b"x\n", new=True), "must be new"),
        (WriteFile(path("a"), b"x\n", executable=False), "mode"),
        (DeleteFile(path("a"), b"x"), "deleted file must hold"),
        (WriteLink(path("a"), b"b"), "whole files only"),
        (EditText(path("a"), (Replacement("a", "b"),)), "whole files only"),
        (PatchFile(path("a"), ()), "whole files only"),
    ],
)
def test_what_a_fence_cannot_say(operation: Operation, why: str) -> None:
    with pytest.raises(UsageError, match=why.replace("^", r"\^")) as caught:
        render_fence((operation,))
    assert caught.value.rule == "render.inexpressible"


@pytest.mark.parametrize("name", ["end", "delete", "^a", "^^^", "\u00a0a", "a b", "end/a"])
def test_odd_names_are_written_so_that_they_read_back(name: str) -> None:
    operation = WriteFile(TreePath((*name.split("/"),)), b"x\n")
    assert parse(render_fence((operation,))) == ChangeSet((operation,))


def test_rendered_text() -> None:
    operations = (WriteFile(path("a"), b"x\n"), DeleteFile(path("b")), WriteFile(path("c"), b""))
    assert render_fence(operations) == ("^^^a\nx\n^^^end\n\n^^^b\n^^^delete\n\n^^^c\n^^^end\n")
