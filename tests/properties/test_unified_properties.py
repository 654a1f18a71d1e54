from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coilclaw.changes import unified_diff
from coilclaw.changes.operations import PathChange, Plan
from coilclaw.kernel.tree_files import RegularFile
from coilclaw.kernel.tree_path import TreePath

LINES = st.lists(st.sampled_from(["", "a", "b", "c\r", "+x", "-y", "@@", " z", "ä"]), max_size=30)
TEXTS = st.tuples(LINES, st.booleans()).map(
    lambda pair: "\n".join(pair[0]) + ("\n" if pair[0] and pair[1] else "")
)


@settings(max_examples=60, deadline=None)
@example("\n\n\n\n", "a\n\n\n\n\n\n")
@given(TEXTS, TEXTS)
def test_git_applies_what_we_show(old: str, new: str) -> None:
    if old != new and old:
        _apply(old, new)


@pytest.mark.parametrize("gone", [0, 20_001])
def test_git_applies_a_change_that_is_shown_whole(gone: int) -> None:
    """In the right place among lines that are all alike."""
    around, come = "same\n" * 15, "new\n" * 20_001
    _apply(around + "old\n" * gone + around, around + come + around)


def _apply(old: str, new: str) -> None:
    change = PathChange(TreePath.parse("f"), RegularFile(old.encode()), RegularFile(new.encode()))
    patch = "\n".join(unified_diff.diff_plan(Plan((change,)))) + "\n"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "f"
        path.write_bytes(old.encode())
        subprocess.run(
            ["git", "apply", "--whitespace=nowarn", "-"],
            cwd=folder,
            input=patch.encode(),
            check=True,
            capture_output=True,
        )
        assert path.read_bytes() == new.encode()
