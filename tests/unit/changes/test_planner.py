from __future__ import annotations

from dataclasses import replace

import pytest

from coilclaw.changes.operations import (
    AnswerLimits,
    AnswerOptions,
    AnswerSource,
    ChangeSet,
    DeleteFile,
    EditText,
    Format,
    Hunk,
    HunkLine,
    Operation,
    PatchFile,
    PathChange,
    PathState,
    Plan,
    Replacement,
    WriteFile,
    WriteLink,
)
from coilclaw.changes.planner import name_lines, plan_changes
from coilclaw.kernel.errors import PlanRefused
from coilclaw.kernel.tree_files import Found, Obstacle, RegularFile, Symlink
from coilclaw.kernel.tree_path import TreePath

TREE: dict[str, Found] = {
    "a.txt": RegularFile(b"one\ntwo\n"),
    "run.sh": RegularFile(b"#!/bin/sh\n", True),
    "dir": Obstacle("directory"),
    "fifo": Obstacle("fifo"),
    "link": Symlink(b"a.txt"),
}


def path(text: str) -> TreePath:
    return TreePath.parse(text)


def see(text: str) -> PathState:
    own = TREE.get(text)
    if isinstance(own, Symlink):
        real = path(own.target.decode())
        return PathState(path(text), own, real, TREE.get(str(real)))
    return PathState(path(text), own, path(text), own)


def make(
    *operations: Operation,
    options: AnswerOptions = AnswerOptions(),
    limits: AnswerLimits = AnswerLimits(),
) -> Plan:
    changes = ChangeSet(operations)
    seen = {name: see(str(name)) for name in name_lines(changes)}
    return plan_changes(changes, seen, options=options, limits=limits)


def refusal(
    *operations: Operation,
    options: AnswerOptions = AnswerOptions(),
    limits: AnswerLimits = AnswerLimits(),
) -> str:
    with pytest.raises(PlanRefused) as caught:
        make(*operations, options=options, limits=limits)
    return caught.value.rule


def edit(name: str, find: str = "one", put: str = "1") -> EditText:
    return EditText(path(name), (Replacement(find, put),))


def patch(name: str, target: str | None = None, *, keep: bool = False) -> PatchFile:
    hunk = Hunk((HunkLine("-", b"one"), HunkLine("+", b"1"), HunkLine(" ", b"two")), 1, 1)
    return PatchFile(path(name), (hunk,), path(target) if target else None, keep)


OVERLAPS: dict[str, tuple[Operation, ...]] = {
    "write and write": (WriteFile(path("n"), b"1"), WriteFile(path("n"), b"2")),
    "two spellings": (WriteFile(path("./n"), b"1"), WriteFile(path("n"), b"2")),
    "write and delete": (WriteFile(path("a.txt"), b""), DeleteFile(path("a.txt"))),
    "edit and patch": (edit("a.txt"), patch("a.txt")),
    "through a link": (WriteFile(path("link"), b""), WriteFile(path("a.txt"), b"")),
    "move onto a write": (patch("a.txt", "n"), WriteFile(path("n"), b"")),
    "move from an edit": (edit("a.txt"), patch("a.txt", "n")),
    "case only": (WriteFile(path("Name"), b""), WriteFile(path("name"), b"")),
    "file and directory": (WriteFile(path("n"), b""), WriteFile(path("n/x"), b"")),
    "another case below": (DeleteFile(path("a.txt")), WriteFile(path("A.txt/x"), b"")),
}


def test_a_file_that_goes_makes_room_for_a_directory() -> None:
    changes = ChangeSet((DeleteFile(path("a.txt")), WriteFile(path("a.txt/x"), b"1")))
    made = plan_changes(changes, {name: see(str(name)) for name in name_lines(changes)})
    assert [(str(each.path), each.after) for each in made.changes] == [
        ("a.txt", None),
        ("a.txt/x", RegularFile(b"1")),
    ]


def test_every_operation_that_does_not_fit_is_named() -> None:
    changes = ChangeSet(
        (DeleteFile(path("gone")), edit("a.txt", "no such"), WriteFile(path("n"), b""))
    )
    with pytest.raises(PlanRefused) as caught:
        plan_changes(changes, {name: see(str(name)) for name in name_lines(changes)})
    rules = [each.rule for each in caught.value.failures]
    assert rules == ["plan.missing", "patch.missing"]


def test_a_new_file_that_is_there_as_asked_is_already_applied() -> None:
    content = see("a.txt").real_found
    assert isinstance(content, RegularFile)
    again = WriteFile(path("a.txt"), content.content, new=True)
    assert refusal(again) == "plan.applied"


@pytest.mark.parametrize("case", OVERLAPS)
def test_two_operations_on_one_path_are_refused(case: str) -> None:
    assert refusal(*OVERLAPS[case]) == "plan.overlap"


def test_two_names_of_one_inode_are_refused() -> None:
    changes = ChangeSet((WriteFile(path("A"), b"1"), WriteFile(path("b"), b"2")))
    seen = {
        name: replace(see(str(name)), real_found=RegularFile(b""), identity=(1, 2))
        for name in name_lines(changes)
    }
    with pytest.raises(PlanRefused, match="same file"):
        plan_changes(changes, seen)


REFUSED: dict[str, tuple[Operation, str]] = {
    "create over a file": (WriteFile(path("a.txt"), b"", new=True), "plan.exists"),
    "delete of nothing": (DeleteFile(path("none")), "plan.missing"),
    "edit of nothing": (edit("none"), "plan.missing"),
    "patch of nothing": (patch("none"), "plan.missing"),
    "write over a directory": (WriteFile(path("dir"), b""), "plan.obstacle"),
    "delete of a directory": (DeleteFile(path("dir")), "plan.obstacle"),
    "write over a fifo": (WriteFile(path("fifo"), b""), "plan.obstacle"),
    "edit of a fifo": (edit("fifo"), "plan.obstacle"),
    "move onto a file": (patch("a.txt", "run.sh"), "plan.exists"),
    "move of a link": (patch("link", "n"), "plan.link"),
    "link by default": (WriteLink(path("l"), b"a.txt"), "plan.link"),
    "delete of other content": (DeleteFile(path("a.txt"), b"else"), "plan.content"),
    "find that is missing": (edit("a.txt", "three"), "patch.missing"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_the_tree_is_refused(case: str) -> None:
    operation, rule = REFUSED[case]
    assert refusal(operation) == rule


@pytest.mark.parametrize(
    "target", [b"/etc/passwd", b"../x", b"a/../../x", b"", b".git/config", b"..", b"\xff", b"a\0b"]
)
def test_a_link_that_would_leave_is_refused_even_when_links_are_allowed(target: bytes) -> None:
    assert refusal(WriteLink(path("l"), target), options=AnswerOptions(links=True)) == "plan.link"


def test_bounds_are_kept() -> None:
    limits = AnswerLimits(file_bytes=4, total_bytes=6)
    assert refusal(WriteFile(path("n"), b"12345"), limits=limits) == "plan.bounds"
    both = (WriteFile(path("n"), b"1234"), WriteFile(path("m"), b"1234"))
    assert refusal(*both, limits=limits) == "plan.bounds"
    assert len(make(*both, limits=replace(limits, total_bytes=8)).changes) == 2


def test_a_refusal_says_where_in_the_answer() -> None:
    first = WriteFile(path("n"), b"", source=AnswerSource(Format.FENCE, 3))
    second = WriteFile(path("n"), b"", source=AnswerSource(Format.BUNDLE, 9))
    with pytest.raises(PlanRefused) as caught:
        make(first, second)
    assert (caught.value.line, caught.value.path) == (9, "n")
    assert "line 3 and line 9" in caught.value.message


def test_the_plan_holds_exact_bytes_before_and_after() -> None:
    done = make(
        WriteFile(path("z/new"), b"new", executable=True),
        WriteFile(path("run.sh"), b"#!/bin/bash\n"),
        edit("a.txt"),
    )
    assert done == Plan(
        (
            PathChange(path("a.txt"), RegularFile(b"one\ntwo\n"), RegularFile(b"1\ntwo\n")),
            PathChange(
                path("run.sh"),
                RegularFile(b"#!/bin/sh\n", True),
                RegularFile(b"#!/bin/bash\n", True),
            ),
            PathChange(path("z/new"), None, RegularFile(b"new", True)),
        )
    )
    assert done.invert().invert() == done


def test_a_move_removes_and_a_copy_keeps() -> None:
    before, after = RegularFile(b"one\ntwo\n"), RegularFile(b"1\ntwo\n")
    assert make(patch("a.txt", "b.txt")) == Plan(
        (PathChange(path("a.txt"), before, None), PathChange(path("b.txt"), None, after))
    )
    assert make(patch("a.txt", "b.txt", keep=True)) == Plan(
        (PathChange(path("b.txt"), None, after),)
    )


def test_a_copy_reads_the_old_content_of_a_file_that_is_edited_too() -> None:
    done = make(patch("a.txt", "b.txt", keep=True), edit("a.txt", "two", "2"))
    assert [(str(c.path), c.after) for c in done.changes] == [
        ("a.txt", RegularFile(b"one\n2\n")),
        ("b.txt", RegularFile(b"1\ntwo\n")),
    ]


def test_modes_change_and_stay() -> None:
    made = make(PatchFile(path("run.sh"), (), executable=False, old_executable=True))
    assert made.changes[0].after == RegularFile(b"#!/bin/sh\n", False)
    odd = make(PatchFile(path("a.txt"), (), executable=True, old_executable=True))
    assert odd.changes[0].after == RegularFile(b"one\ntwo\n", True)
    assert odd.warnings == ("'a.txt' has another mode than the patch says",)


def test_a_link_is_deleted_itself_and_written_through() -> None:
    assert make(DeleteFile(path("link"))) == Plan(
        (PathChange(path("link"), Symlink(b"a.txt"), None),)
    )
    written = make(WriteFile(path("link"), b"x"))
    assert [str(change.path) for change in written.changes] == ["a.txt"]


def test_a_link_inside_the_tree_is_made_when_asked_for() -> None:
    made = make(WriteLink(path("d/l"), b"../a.txt"), options=AnswerOptions(links=True))
    assert made.changes == (PathChange(path("d/l"), None, Symlink(b"../a.txt")),)


def test_what_is_there_already_is_no_change() -> None:
    assert make(WriteFile(path("a.txt"), b"one\ntwo\n")).changes == ()
    assert make(DeleteFile(path("a.txt"), b"one\ntwo\n")).changes[0].after is None


def test_a_case_only_rename_is_no_overlap() -> None:
    moved = make(PatchFile(path("a.txt"), (), path("A.txt")))
    assert [str(change.path) for change in moved.changes] == ["A.txt", "a.txt"]
