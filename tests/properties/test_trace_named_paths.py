"""Whatever changes between two trees: naming the paths gives the tree that looking gives."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from coilclaw.traces.trajectory.checkpoints import Checkpoints
from tests.support.scale import scaled

NAMES = st.sampled_from(["a", "a.b", "a-b", "a0", "b", "ä"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
CONTENTS = st.tuples(st.binary(max_size=4), st.booleans()) | st.sampled_from(["a", "../x"])
TREES = st.dictionaries(PATHS, CONTENTS, max_size=6)


def put(root: Path, tree: dict[str, tuple[bytes, bool] | str]) -> None:
    for entry in root.iterdir():
        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    for name, content in tree.items():
        path = root / name
        if any(one.is_symlink() or one.is_file() for one in path.parents if one != root):
            continue
        if path.is_dir() or path.is_symlink():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            os.symlink(content, path)
        else:
            path.write_bytes(content[0])
            path.chmod(0o755 if content[1] else 0o644)


def leaves(root: Path) -> set[str]:
    return {
        str(path.relative_to(root))
        for path in root.rglob("*")
        if path.is_symlink() or not path.is_dir()
    }


@settings(max_examples=scaled(full=200, default=25), deadline=None)
@given(TREES, st.lists(TREES, min_size=1, max_size=2))
def test_named_paths_and_a_look_at_everything_agree(
    first: dict[str, tuple[bytes, bool] | str], later: list[dict[str, tuple[bytes, bool] | str]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        root.mkdir()
        checkpoints = Checkpoints(Path(folder) / "repo.git", root, seconds=lambda: 1)
        put(root, first)
        checkpoints.begin()
        for tree in later:
            before = leaves(root)
            put(root, tree)
            checkpoints.take("x", sorted(before | leaves(root)))
            assert checkpoints.state.tree == checkpoints.tree()
