"""No path outside of a scope is ever accepted, whatever it and the scope look like."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coilclaw.kernel.errors import PathRefused
from coilclaw.kernel.tree_files import ChangeKind, EntryType, TreeChange, TreeDiff
from coilclaw.kernel.tree_path import TreePath
from coilclaw.runs.gates.diff import Observed, judge_diff
from coilclaw.runs.gates.scope import Scope, ScopePlaces

NAMES = st.sampled_from(
    [
        "src",
        "Src",
        ".github",
        "github",
        "a",
        "ab",
        "b.py",
        ".env",
        "environment.py",
        ".git",
        "docs",
        "..",
        ".",
        "",
        "a b",
        "ｓrc",
        "a\u200db",
        "con",
        "x\n",
        "é",
        "*",
        "conftest.py",
        "policies",
    ]
)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join) | st.text(max_size=12)
ENTRIES = st.lists(PATHS | PATHS.map(lambda path: path + "/"), max_size=4).map(tuple)
KINDS = st.sampled_from([ChangeKind.ADDED, ChangeKind.MODIFIED, ChangeKind.REMOVED])


def observed() -> Observed:
    return Observed(frozenset(), frozenset(), frozenset(), {}, (), ())


def inside(entries: tuple[str, ...], path: str) -> bool:
    """The rule as plainly as it can be said: the path is an entry, or below one."""
    try:
        if str(TreePath.parse(path)) != path:
            return False
    except PathRefused:
        return False
    return any(below(entry, path) for entry in entries)


def below(entry: str, path: str) -> bool:
    return path == entry or path.startswith(entry.removesuffix("/") + "/")


def change(kind: ChangeKind, path: str, old: str | None = None) -> TreeChange:
    return TreeChange(kind, path, old, EntryType.FILE, EntryType.FILE, "1" * 40, "2" * 40)


@given(ENTRIES, PATHS, KINDS)
def test_what_passes_is_inside(entries: tuple[str, ...], path: str, kind: ChangeKind) -> None:
    result = judge_diff(TreeDiff((change(kind, path),)), scope=Scope(entries), observed=observed())
    if result.passed:
        assert inside(entries, path)
        assert not {".git", ".env"} & set(path.casefold().split("/"))


@given(ENTRIES, PATHS, PATHS, st.sampled_from([ChangeKind.RENAMED, ChangeKind.COPIED]))
def test_both_ends_of_what_passes_are_inside(
    entries: tuple[str, ...], old: str, new: str, kind: ChangeKind
) -> None:
    result = judge_diff(
        TreeDiff((change(kind, new, old),)), scope=Scope(entries), observed=observed()
    )
    if result.passed:
        assert inside(entries, old)
        assert inside(entries, new)


@given(ENTRIES, PATHS)
def test_a_path_below_a_sound_entry_is_covered(entries: tuple[str, ...], path: str) -> None:
    for entry in entries:
        if ScopePlaces.of((entry,)).cover(entry.removesuffix("/") + "/x"):
            assert ScopePlaces.of(entries).cover(entry.removesuffix("/") + "/x/y")
    if ScopePlaces.of(entries).cover(path):
        assert any(below(entry, path) for entry in entries)


@given(PATHS)
def test_messages_and_facts_are_always_valid_unicode(path: str) -> None:
    odd = path + "\udcff"
    result = judge_diff(
        TreeDiff((change(ChangeKind.ADDED, odd),)), scope=Scope(("src",)), observed=observed()
    )
    for violation in result.violations:
        (violation.message + violation.path).encode("utf-8")
    names = result.facts["names"]
    assert isinstance(names, list)
    for name in names:
        str(name).encode("utf-8")
