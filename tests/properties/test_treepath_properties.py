from __future__ import annotations

import os.path

from hypothesis import given
from hypothesis import strategies as st

from coilclaw.kernel.errors import PathRefused
from coilclaw.kernel.tree_path import TreePath, fold_name

NAMES = st.text(alphabet=st.sampled_from(list("abcG.gitGIT~1:\\ /\u200c\0\n"))) | st.text()


@given(NAMES)
def test_what_is_accepted_stays_inside_and_is_stable(text: str) -> None:
    try:
        path = TreePath.parse(text)
    except PathRefused:
        return
    joined = os.path.normpath(os.path.join("/root", str(path)))
    assert joined.startswith("/root/")
    assert TreePath.parse(str(path)) == path
    assert not {".", "..", ""} & set(path.parts)
    assert all(fold_name(part) != ".git" for part in path.parts)


@given(NAMES, st.sampled_from([".git", ".GIT", "git~1", ".g\u200dit", ".git "]), NAMES)
def test_git_is_refused_wherever_it_stands(before: str, git: str, after: str) -> None:
    for text in (f"{before}/{git}/{after}", f"{git}/{after}", f"{before}/{git}"):
        try:
            TreePath.parse(text)
        except PathRefused:
            continue
        raise AssertionError(text)
