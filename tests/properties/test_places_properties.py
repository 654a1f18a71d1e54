from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coilclaw.workspace.tree.path_lookup import PathLookup

NAMES = st.sampled_from(["a", "b", "l1", "l2", "l3", "up", "loop", "..", ".", "", "f", "new", "~"])
PATHS = st.lists(NAMES, max_size=8).map("/".join)


@pytest.fixture(scope="module")
def tree() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name).resolve() / "w"
        (root / "a" / "b").mkdir(parents=True)
        (root / "a" / "f").write_text("x")
        (root / "l1").symlink_to("a")
        (root / "a" / "l2").symlink_to("../a/b")
        (root / "a" / "b" / "l3").symlink_to(root)
        (root / "up").symlink_to("..")
        (root / "loop").symlink_to("loop")
        yield root


@given(path=PATHS)
def test_the_real_path_is_that_of_the_kernel(tree: Path, path: str) -> None:
    place = PathLookup(tree, home=str(tree)).locate(path)
    assert place.lexical.startswith("/")
    assert place.lexical == os.path.normpath(place.lexical)
    if place.real is None:
        return
    assert place.real == os.path.realpath(place.lexical)
    assert (place.kind == "missing") is not os.path.exists(place.lexical)


@given(path=st.text())
def test_any_text_has_a_place(tree: Path, path: str) -> None:
    place = PathLookup(tree).locate(path)
    assert place.given == path
    assert place.lexical.startswith("/")
    assert ".." not in place.lexical.split("/")
