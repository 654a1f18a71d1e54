"""git patches under random contents, operations and noise."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coilclaw.changes import line_edits
from coilclaw.changes.formats import git_binary, git_patch
from coilclaw.changes.operations import (
    AnswerOptions,
    DeleteFile,
    Hunk,
    HunkLine,
    Operation,
    PatchBinary,
    PatchFile,
    WriteFile,
    WriteLink,
)
from coilclaw.kernel.errors import AnswerError, PathRefused, PlanRefused, UsageError
from coilclaw.kernel.tree_path import TreePath
from tests.support.answer_rendering import render_git
from tests.support.scale import scaled

REFUSED = {b"lines.ambiguous", b"lines.anchor", b"lines.applied", b"lines.missing"}
PERMISSIVE = AnswerOptions(binary=True, links=True)

# Few different lines, so that files have much in common and much that repeats.
row = st.sampled_from(
    [
        b"",
        b"a",
        b"b",
        b"c",
        b"-- ",
        b"++ x",
        b"-- a/f",
        b"@@ -1 +1 @@",
        b"\\ none",
        b"\xff\0",
        b"\r",
    ]
)
ending = st.sampled_from([b"\n", b"\r\n"])
content = st.builds(
    lambda rows, newline, last: b"".join(part + newline for part in rows) + last,
    st.lists(row, max_size=14),
    ending,
    st.sampled_from([b"", b"end", b"\xe4", b"x\r"]),
)


def git_diff(old: bytes, new: bytes, context: int) -> str:
    """Return git's own patch between two contents of the file ``f``."""
    env = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", "diff", "--no-index", "--no-prefix", "--text", f"-U{context}", "a/f", "b/f"]
    with tempfile.TemporaryDirectory() as root:
        for side, data in (("a", old), ("b", new)):
            (Path(root) / side).mkdir()
            (Path(root) / side / "f").write_bytes(data)
        made = subprocess.run(command, cwd=root, env=env, capture_output=True, check=False)
    assert made.returncode in {0, 1}, made.stderr
    return made.stdout.decode("utf-8", "surrogateescape")


def only(operations: tuple[Operation, ...]) -> PatchFile:
    (operation,) = operations
    assert isinstance(operation, PatchFile)
    return operation


def parse(text: str, options: AnswerOptions = AnswerOptions()) -> tuple[Operation, ...]:
    return git_patch.parse(text, first_line=1, options=options)


def attempt(text: str, options: AnswerOptions) -> tuple[Operation, ...] | AnswerError | PathRefused:
    try:
        return git_patch.parse(text, first_line=7, options=options)
    except (AnswerError, PathRefused) as problem:
        return problem


def put(old: bytes, operation: PatchFile) -> bytes:
    return line_edits.apply_hunks(old, operation.hunks, path="f")


@settings(max_examples=scaled(full=600, default=150), deadline=None)
@given(content, content, st.integers(1, 3))
def test_git_s_own_patch_gives_git_s_own_result(old: bytes, new: bytes, context: int) -> None:
    text = git_diff(old, new, context)
    if old == new:
        assert text == ""
        return
    operation = only(parse(text))
    assert put(old, operation) == new
    assert parse(render_git([operation])) == (operation,)
    # Lenient reading changes nothing where the counts are right, and repairs them where not.
    assert parse(text, AnswerOptions(lenient=True)) == (operation,)


plain_row = st.sampled_from([b"", b"a", b"b", b"c", b"    d", b"++ x"])
plain = st.lists(plain_row, max_size=14).map(lambda rows: b"".join(part + b"\n" for part in rows))


@settings(max_examples=scaled(full=1000, default=80), deadline=None)
@given(plain, plain, st.integers(0, 99), st.integers(0, 99))
def test_wrong_counts_are_recounted_when_lenient(old: bytes, new: bytes, b: int, d: int) -> None:
    text = git_diff(old, new, 3)
    if old == new:
        return
    wrong = re.sub(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@", rf"@@ -\1,{b} +\2,{d} @@", text)
    repaired = parse(wrong, AnswerOptions(lenient=True))
    assert put(old, only(repaired)) == new
    strict = attempt(wrong, AnswerOptions())
    assert strict == repaired or (
        isinstance(strict, AnswerError) and strict.rule == "git.corrupt" and wrong != text
    )


@settings(max_examples=scaled(full=1000, default=80), deadline=None)
@given(plain, plain, st.integers(1, 5))
def test_a_patch_for_a_file_that_moved_down_fits_or_refuses(
    old: bytes, new: bytes, above: int
) -> None:
    if old in {new, b""}:
        return
    operation = only(parse(git_diff(old, new, 3)))
    head = b"".join(b"above %d\n" % number for number in range(above))
    try:
        result = put(head + old, operation)
    except PlanRefused as refusal:
        result = refusal.rule.encode()
    if result not in {head + new, *REFUSED}:
        # The only other way is that a hunk matches at its stated line, exactly, by repetition.
        assert len(set(old.split(b"\n"))) < old.count(b"\n") + 1


name = st.text("ab .\"'ä#", min_size=1, max_size=6).filter(
    lambda text: not text.endswith((".", " ")) and text.strip(".") != ""
)
paths = st.lists(name, min_size=1, max_size=3).map(lambda parts: TreePath(tuple(parts)))
any_bytes = st.binary(max_size=40) | st.lists(row, max_size=6).map(b"\n".join)
text_line = st.binary(max_size=12).map(lambda data: data.replace(b"\n", b""))
hunk_line = st.builds(HunkLine, st.sampled_from([" ", "-", "+"]), text_line)
hunks = st.builds(
    Hunk,
    st.lists(hunk_line, min_size=1, max_size=6).map(tuple),
    old_start=st.integers(0, 10**6),
    new_start=st.integers(0, 10**6),
    heading=text_line,
)
mode = st.none() | st.booleans()
blob = st.sampled_from(["1" * 40, "a" * 40, git_binary.ABSENT])
operation_values = st.one_of(
    st.builds(WriteFile, paths, any_bytes, new=st.booleans(), executable=mode),
    st.builds(WriteLink, paths, any_bytes),
    st.builds(DeleteFile, paths, st.none() | any_bytes),
    st.builds(
        PatchFile,
        paths,
        st.lists(hunks, max_size=3).map(tuple),
        target=st.none() | paths,
        keep=st.booleans(),
        old_executable=mode,
        executable=mode,
    ),
    st.builds(
        lambda path, method, data, old_id, new_id, **more: PatchBinary(
            path, method, data, len(data), old_id, new_id, **more
        ),
        paths,
        st.sampled_from(["literal", "delta"]),
        any_bytes,
        blob,
        blob,
        new=st.booleans(),
        delete=st.booleans(),
        executable=mode,
    ),
)


@settings(max_examples=scaled(full=1200, default=400), deadline=None)
@given(st.lists(operation_values, min_size=1, max_size=3))
def test_what_is_rendered_is_read_back_as_it_was(operations: list[Operation]) -> None:
    try:
        text = render_git(operations)
    except UsageError as problem:
        text = problem.rule
    assert text == "render.inexpressible" or parse(text, PERMISSIVE) == tuple(operations)


@settings(max_examples=scaled(full=1000, default=300), deadline=None)
@given(paths, st.none() | paths, st.lists(hunks, min_size=1, max_size=3), st.booleans(), mode)
def test_every_proper_line_edit_has_a_spelling(
    path: TreePath, target: TreePath | None, made: list[Hunk], keep: bool, executable: bool | None
) -> None:
    operation = PatchFile(
        path,
        tuple(hunk for hunk in made if {line.mark for line in hunk.lines} != {" "}),
        target=None if target == path else target,
        keep=keep and target not in {None, path},
        old_executable=None if executable is None else not executable,
        executable=executable,
    )
    if operation.hunks or operation.target or executable is not None:
        assert parse(render_git([operation])) == (operation,)


@settings(max_examples=scaled(full=600, default=150), deadline=None)
@given(paths, any_bytes, mode)
def test_every_new_file_has_a_spelling_but_an_empty_one_without_mode(
    path: TreePath, data: bytes, executable: bool | None
) -> None:
    operation = WriteFile(path, data, new=True, executable=executable)
    if data or executable is not None:
        assert parse(render_git([operation])) == (operation,)
    else:
        with pytest.raises(UsageError):
            render_git([operation])


fragment = st.sampled_from(
    [
        "diff --git a/f b/f",
        'diff --git "a/f" "b/f"',
        "diff --git a/f b/g",
        "diff --cc f",
        "index 0000000..e69de29",
        f"index {'1' * 40}..{'2' * 40} 100644",
        "old mode 100644",
        "new mode 100755",
        "new file mode 100644",
        "new file mode 120000",
        "deleted file mode 100644",
        "similarity index 90%",
        "rename from f",
        "rename to g",
        "copy from f",
        "copy to g",
        "--- a/f",
        "+++ b/f",
        "--- /dev/null",
        "+++ /dev/null",
        "+++ b/g\t2020",
        "@@ -1 +1 @@",
        "@@ -1,2 +1,2 @@ h",
        "@@ -0,0 +1 @@",
        "@@ -1 +0,0 @@",
        "-x",
        "+y",
        " z",
        "",
        "\\ No newline at end of file",
        "-- ",
        "GIT binary patch",
        "literal 0",
        "delta 1",
        "HcmV?d00001",
        "Binary files a/f and b/f differ",
    ]
)


@settings(max_examples=scaled(full=1000, default=700), deadline=None)
@given(
    st.lists(fragment | st.text(max_size=12), max_size=14).map("\n".join) | st.text(),
    st.builds(AnswerOptions, lenient=st.booleans(), binary=st.booleans(), links=st.booleans()),
)
def test_any_text_is_read_or_refused(text: str, options: AnswerOptions) -> None:
    found = attempt(text, options)
    if isinstance(found, AnswerError):
        assert found.rule.startswith("git.")
        assert found.line is not None
        assert 7 <= found.line <= 8 + text.count("\n")
    elif not isinstance(found, PathRefused):
        assert found
        assert parse(render_git(found), PERMISSIVE) == found
