"""The ``*** Begin Patch`` envelope: read strictly, written back exactly."""

from __future__ import annotations

import pytest

from coilclaw.changes import line_edits
from coilclaw.changes.formats import envelope
from coilclaw.changes.operations import (
    AnswerSource,
    DeleteFile,
    EditText,
    Format,
    Hunk,
    HunkLine,
    Operation,
    PatchBinary,
    PatchFile,
    WriteFile,
    WriteLink,
)
from coilclaw.kernel.errors import AnswerError, PathRefused, UsageError
from coilclaw.kernel.tree_path import TreePath
from tests.support.answer_rendering import render_envelope


def parse(text: str, first_line: int = 1) -> tuple[Operation, ...]:
    return envelope.parse(text, first_line=first_line)


def inside(*body: str) -> str:
    return "".join(f"{line}\n" for line in ("*** Begin Patch", *body, "*** End Patch"))


def told(text: str) -> tuple[str, int]:
    """Return rule and line of the refusal."""
    with pytest.raises(AnswerError) as caught:
        envelope.parse(text, first_line=11)
    assert caught.value.message.startswith(f"line {caught.value.line}: ")
    return caught.value.rule, (caught.value.line or 0) - 10


def path(text: str) -> TreePath:
    return TreePath.parse(text)


def hunk(*rows: str, heading: bytes = b"", at_end: bool = False) -> Hunk:
    marks = {mark: mark for mark in (" ", "-", "+")}
    made = tuple(HunkLine(marks[row[0]], row[1:].encode()) for row in rows)  # type: ignore[arg-type]  # one of three marks
    return Hunk(made, heading=heading, at_end=at_end)


UPDATE = ("*** Update File: f", "@@", "-x", "+y")


@pytest.mark.parametrize(
    ("text", "rule", "line"),
    [
        ("", "envelope.begin", 1),
        ("\n\nprose\n*** Begin Patch\n", "envelope.begin", 3),
        ("*** Begin Patch \n*** Delete File: f\n*** End Patch\n", "envelope.begin", 1),
        ("*** Update File: f\n-x\n*** End Patch\n", "envelope.begin", 1),
        ("*** Begin Patch\n", "envelope.end", 2),
        ("*** Begin Patch\n*** Update File: f\n-x\n+y\n", "envelope.end", 5),
        (inside(), "envelope.empty", 2),
        (inside(*UPDATE) + "prose\n", "envelope.end", 7),
        (inside(*UPDATE) + inside(*UPDATE), "envelope.end", 7),
        (inside("prose", *UPDATE), "envelope.header", 2),
        (inside("", *UPDATE), "envelope.header", 2),
        (inside("*** Rename File: f"), "envelope.header", 2),
        (inside("*** update File: f", "-x"), "envelope.header", 2),
        (inside("*** Move to: f"), "envelope.header", 2),
        (inside("*** Begin Patch", *UPDATE), "envelope.header", 2),
        (inside("*** Delete File: f", "-x"), "envelope.header", 3),
        (inside("*** Delete File: f", "", *UPDATE), "envelope.header", 3),
        (inside("*** Add File: f", "+x", "y"), "envelope.add", 4),
        (inside("*** Add File: f", "+x", "", "+y"), "envelope.add", 4),
        (inside("*** Add File: f", "@@", "+y"), "envelope.add", 3),
        (inside("*** Add File: "), "envelope.path", 2),
        (inside("*** Add File:  f"), "envelope.path", 2),
        (inside("*** Update File: f "), "envelope.path", 2),
        (inside("*** Update File: f", "*** Move to: f", "-x"), "envelope.path", 3),
        (inside("*** Update File: f", "*** Move to: ./f", "-x"), "envelope.path", 3),
        (inside("*** Update File: f"), "envelope.chunk", 3),
        (inside("*** Update File: f", "@@"), "envelope.chunk", 3),
        (inside("*** Update File: f", "@@", "@@", "-x"), "envelope.chunk", 3),
        (inside("*** Update File: f", "@@ a", "@@", "-x"), "envelope.chunk", 4),
        (inside("*** Update File: f", "@@", " x"), "envelope.chunk", 3),
        (inside("*** Update File: f", "-x", "@@ a", " x", "@@", "-z"), "envelope.chunk", 4),
        (inside("*** Update File: f", "-x", "prose"), "envelope.chunk", 4),
        (inside("*** Update File: f", "-x", "\ty"), "envelope.chunk", 4),
        (inside("*** Update File: f", "@@@", "-x"), "envelope.chunk", 3),
        (inside("*** Update File: f", "@@ -1,2 +1,2 @@", "-x"), "envelope.chunk", 3),
        (inside("*** Update File: f", "@@ -1 +1 @@ def f", "-x"), "envelope.chunk", 3),
        (inside("*** Update File: f", "-x", "*** End of File", "@@", "-y"), "envelope.chunk", 5),
        (inside("*** Update File: f", "*** End of File", "-y"), "envelope.chunk", 3),
        (inside("*** Update File: f", "-x", "*** Note: y"), "envelope.header", 4),
        (inside("*** Update File: f", "-x\ud800"), "envelope.encoding", 3),
        (inside(*UPDATE).replace("\n", "\r\n", 1), "envelope.begin", 1),
    ],
)
def test_anything_else_is_refused_with_its_line(text: str, rule: str, line: int) -> None:
    assert told(text) == (rule, line)


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../f", ".git/config", "a\\b", "a/", "nul", "\x1b[0m"]
)
@pytest.mark.parametrize("header", ["Add File", "Update File", "Delete File", "Move to"])
def test_paths_are_refused_in_every_header(header: str, name: str) -> None:
    before = ("*** Update File: f",) if header == "Move to" else ()
    with pytest.raises(PathRefused):
        parse(inside(*before, f"*** {header}: {name}", "+x"))


def test_a_name_that_is_far_too_long_is_refused_quickly() -> None:
    assert told(inside("*** Add File: " + "x" * 20_000)) == ("envelope.path", 2)


def test_every_kind_of_section_is_read() -> None:
    text = inside(
        "*** Add File: new/file.txt",
        "+one",
        "+",
        "+*** End Patch",
        "*** Add File: empty",
        "*** Update File: f",
        " context",
        "",
        "-old",
        "+new",
        "@@ class A:",
        "@@     def f(self):",
        "+inserted",
        "@@",
        "-last",
        "*** End of File",
        "*** Update File: from",
        "*** Move to: to",
        "*** Update File: src",
        "*** Move to: dst",
        "@@ ",
        "-x",
        "*** Delete File: gone",
    )
    assert parse(f"\n{text}\n\n") == (
        WriteFile(path("new/file.txt"), b"one\n\n*** End Patch\n", new=True),
        WriteFile(path("empty"), b"", new=True),
        PatchFile(
            path("f"),
            (
                hunk(" context", " ", "-old", "+new"),
                hunk("+inserted", heading=b"class A:\n    def f(self):"),
                hunk("-last", at_end=True),
            ),
        ),
        PatchFile(path("from"), (), target=path("to")),
        PatchFile(path("src"), (hunk("-x"),), target=path("dst")),
        DeleteFile(path("gone")),
    )


def test_a_whole_envelope_in_crlf_is_read_as_if_it_were_not() -> None:
    text = inside("*** Add File: n", "+x", *UPDATE)
    assert parse(text.replace("\n", "\r\n")) == parse(text)
    assert parse(text.replace("\n", "\r\n").removesuffix("\r\n")) == parse(text)
    kept = parse(inside("*** Add File: n", "+x\r"))
    assert kept == (WriteFile(path("n"), b"x\r\n", new=True),)


def test_one_path_twice_stays_two_operations() -> None:
    assert len(parse(inside(*UPDATE, *UPDATE))) == 2


def test_lines_are_those_of_the_whole_answer() -> None:
    first, second = parse(inside(*UPDATE, "@@ h", "-p", "*** Delete File: g"), first_line=21)
    assert (first.source, second.source) == (
        AnswerSource(Format.ENVELOPE, 22, 0),
        AnswerSource(Format.ENVELOPE, 28, 1),
    )
    assert isinstance(first, PatchFile)
    assert [chunk.source for chunk in first.hunks] == [
        AnswerSource(Format.ENVELOPE, 23, 0),
        AnswerSource(Format.ENVELOPE, 26, 1),
    ]


def test_an_update_is_put_into_the_file_it_was_written_for() -> None:
    above = b"class A:\n    def f(self):\n        return 1\n\n    def g(self):\n"
    content = b"import os\n" + above + b"        return 1\n"
    (operation,) = parse(
        inside(
            "*** Update File: f.py",
            "-import os",
            "+import sys",
            "@@ class A:",
            "@@     def g(self):",
            "-        return 1",
            "+        return 2",
            "*** End of File",
        )
    )
    assert isinstance(operation, PatchFile)
    assert line_edits.apply_hunks(content, operation.hunks, path="f.py") == (
        b"import sys\n" + above + b"        return 2\n"
    )


ONE = hunk("-x", "+y")


@pytest.mark.parametrize(
    "operation",
    [
        WriteFile(path("f"), b"x\n"),
        WriteFile(path("f"), b"x", new=True),
        WriteFile(path("f"), b"x\n", new=True, executable=True),
        WriteFile(path(" f"), b"x\n", new=True),
        WriteLink(path("f"), b"x"),
        DeleteFile(path("f"), b"x"),
        EditText(path("f"), ()),
        PatchBinary(path("f"), "literal", b"", 0, "1" * 40, "2" * 40),
        PatchFile(path("f"), ()),
        PatchFile(path("f"), (ONE,), target=path("g"), keep=True),
        PatchFile(path("f"), (ONE,), target=path("f")),
        PatchFile(path("f"), (ONE,), executable=True),
        PatchFile(path("f"), (Hunk(ONE.lines, old_start=1),)),
        PatchFile(path("f"), (Hunk(ONE.lines, heading=b" "),)),
        PatchFile(path("f"), (Hunk(ONE.lines, heading=b"a\n\nb"),)),
        PatchFile(path("f"), (hunk(" x"),)),
        PatchFile(path("f"), (Hunk((HunkLine("-", b"x", newline=False),)),)),
        PatchFile(path("f"), (Hunk((HunkLine("-", b"x\ny"),)),)),
        PatchFile(path("f"), (Hunk(ONE.lines, at_end=True), ONE)),
    ],
)
def test_what_an_envelope_cannot_say_is_not_rendered(operation: Operation) -> None:
    with pytest.raises(UsageError) as caught:
        render_envelope([operation])
    assert caught.value.rule == "render.inexpressible"


def test_nothing_is_not_rendered() -> None:
    with pytest.raises(UsageError) as caught:
        render_envelope([])
    assert caught.value.rule == "render.inexpressible"


def test_everything_else_round_trips() -> None:
    operations = (
        WriteFile(path("n"), b"", new=True),
        WriteFile(path("o p"), b"*** End Patch\n\xff\r\n\n", new=True),
        DeleteFile(path("d")),
        PatchFile(path("f"), (ONE, hunk("+@@", " *** x", heading=b" h\nk\xff"))),
        PatchFile(path("g"), (Hunk(ONE.lines, at_end=True),), target=path("h")),
        PatchFile(path("i"), (), target=path("j")),
    )
    assert parse(render_envelope(operations)) == operations


@pytest.mark.parametrize("heading", ["@@ def f(): @@", "@@ def f():  @@ ", "@@ def f():"])
def test_a_heading_may_be_closed(heading: str) -> None:
    found = parse(inside("*** Update File: f", heading, "-x", "+y"))
    assert found == (PatchFile(path("f"), (hunk("-x", "+y", heading=b"def f():"),)),)
    bare = parse(inside("*** Update File: f", "@@ @@", "-x", "+y"))
    assert bare == (PatchFile(path("f"), (hunk("-x", "+y"),)),)
