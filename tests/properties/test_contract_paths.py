"""Paths that are accepted stay inside the tree, and are compared as a file system would."""

from __future__ import annotations

import posixpath

from hypothesis import given, settings
from hypothesis import strategies as st

from coilclaw.runs.contracts import paths
from tests.support.scale import scaled

EXAMPLES = scaled(full=5000, default=400)
ODD = st.text("ab./\\*~ -:\n\u200c\u202eGgIiTtß", max_size=12)
PLAIN = st.lists(st.sampled_from(["a", "b", "A", "ab", ".a", "ß", "SS"]), min_size=1, max_size=4)
TREE = PLAIN.map("/".join)


@settings(max_examples=EXAMPLES, deadline=None)
@given(ODD)
def test_an_accepted_path_is_plain_and_stays_inside(text: str) -> None:
    if paths.find_path_flaw(text) is not None:
        return
    body = text.removesuffix("/")
    assert body == posixpath.normpath(body)
    assert not body.startswith(("/", "../", "~/"))
    assert posixpath.normpath(posixpath.join("/root", body)).startswith("/root/")
    assert ".git" not in body.casefold().split("/")


@settings(max_examples=EXAMPLES, deadline=None)
@given(TREE, TREE)
def test_containment_is_that_of_a_file_system(scope: str, path: str) -> None:
    expected = posixpath.commonpath(["/" + scope, "/" + path]) == "/" + scope
    assert paths.contains(scope, path) is expected
    assert paths.contains(scope + "/", path) is expected
    if expected:
        assert paths.overlap(scope, path)


@settings(max_examples=EXAMPLES, deadline=None)
@given(TREE, TREE)
def test_overlap_is_symmetric_and_folds_case(one: str, other: str) -> None:
    assert paths.overlap(one, other) is paths.overlap(other, one)
    assert paths.overlap(one.upper(), one.lower()) or "ß" in one
    assert paths.overlap(one, one + "/below")
