"""Our line engine against ``git apply``: what git refuses is refused, what both accept is equal."""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from coilclaw.changes import line_edits
from coilclaw.changes.formats import git_patch
from coilclaw.changes.operations import AnswerOptions, PatchFile
from coilclaw.kernel.errors import PlanRefused
from tests.support.scale import scaled

ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "LC_ALL": "C",
}

# Few different lines, so that hunks fit in several places.
row = st.sampled_from([b"", b"a", b"b", b"c", b"    d"])
text = st.builds(
    lambda rows, last: b"".join(part + b"\n" for part in rows) + last,
    st.lists(row, max_size=9),
    st.sampled_from([b"", b"", b"end"]),
)
TARGETS = ("once", "twice", "moved down", "grown", "cut", "doubled")


@dataclass(frozen=True)
class Case:
    old: bytes
    new: bytes
    target: str

    @property
    def content(self) -> bytes:
        match self.target:
            case "twice":
                return self.new
            case "moved down":
                return b"above\na\n" + self.old
            case "grown":
                return self.old + (b"" if self.old.endswith(b"\n") else b"\n") + b"below\nb\n"
            case "cut":
                return self.old.partition(b"\n")[2]
            case "doubled":
                return self.old + self.old if self.old.endswith(b"\n") else self.old
            case _:
                return self.old


@st.composite
def edited(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """Return a text and what a few random edits make of it."""
    old = draw(text)
    rows = old.split(b"\n")
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, len(rows)))
        rows[at : at + draw(st.integers(0, 2))] = draw(st.lists(row, max_size=2))
    return old, b"\n".join(rows)


case = st.builds(
    lambda pair, target: Case(pair[0], pair[1], target),
    edited() | st.tuples(text, text),
    st.sampled_from(TARGETS),
)


def git(directory: Path, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["git", *arguments],
        cwd=directory,
        env=ENVIRONMENT,
        input=stdin,
        capture_output=True,
        check=False,
    )


def applied_by_git(root: Path, patch: bytes, cases: list[Case]) -> list[bytes | None]:
    """Let git apply the patch to all files at once; ``None`` for a file with a refused hunk."""
    tree = root / "tree"
    tree.mkdir()
    for number, each in enumerate(cases):
        (tree / f"f{number}").write_bytes(each.content)
    git(tree, "apply", "--reject", "-", stdin=patch)
    return [
        None if (tree / f"f{number}.rej").exists() else (tree / f"f{number}").read_bytes()
        for number in range(len(cases))
    ]


def applied_by_us(operation: PatchFile, content: bytes) -> bytes | str:
    try:
        return line_edits.apply_hunks(content, operation.hunks, path="f")
    except PlanRefused as refused:
        return refused.rule


@settings(max_examples=scaled(full=300, default=40), deadline=None)
@given(st.lists(case, min_size=1, max_size=24), st.integers(0, 3))
def test_what_git_refuses_is_refused_and_what_both_accept_is_equal(
    cases: list[Case], context: int
) -> None:
    cases = [each for each in cases if each.old != each.new]
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for side in ("a", "b"):
            (root / side).mkdir()
        for number, each in enumerate(cases):
            (root / "a" / f"f{number}").write_bytes(each.old)
            (root / "b" / f"f{number}").write_bytes(each.new)
        made = git(
            root, "diff", "--no-index", "--no-prefix", f"-U{context}", "--no-renames", "a", "b"
        )
        patch = made.stdout
        by_git = applied_by_git(root, patch, cases)
    if not cases:
        return
    read = git_patch.parse(patch.decode(), first_line=1, options=AnswerOptions())
    operations = {str(each.path): each for each in read}
    for number, each in enumerate(cases):
        operation = operations[f"f{number}"]
        assert isinstance(operation, PatchFile)
        ours = applied_by_us(operation, each.content)
        if isinstance(ours, bytes):
            assert ours == by_git[number], (each, context)
        elif each.target == "once" and context > 0:
            raise AssertionError(f"{ours}: git's own patch is refused: {each}, -U{context}")
        if each.target == "twice" and isinstance(ours, str) and context > 0:
            assert ours == "lines.applied", (each, context)
