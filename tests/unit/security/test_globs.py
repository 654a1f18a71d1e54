from __future__ import annotations

import pytest

from coilclaw.kernel.errors import UsageError
from coilclaw.kernel.tree_path import TreePath
from coilclaw.policy.protected_files import ProtectedRule, glob_of_path

CASES = [
    ("*.lock", ["a.lock", "sub/b.lock", "x.lock/inside"], ["a.locks", "lock", "a.lock.md"]),
    ("docs", ["docs", "docs/a", "sub/docs/a"], ["docs2", "mydocs/a"]),
    ("/docs", ["docs", "docs/a"], ["sub/docs/a"]),
    ("docs/", ["docs/a"], ["docs2/a"]),
    ("src/*.py", ["src/a.py"], ["src/sub/a.py", "a.py", "x/src/a.py"]),
    ("src/**", ["src/a", "src/a/b"], ["src", "x/src/a"]),
    ("**/test_*.py", ["test_a.py", "a/b/test_c.py"], ["a/b/testing.py"]),
    ("a/**/z", ["a/z", "a/b/z", "a/b/c/z/y"], ["a/zz", "b/z"]),
    ("file?.txt", ["file1.txt", "x/fileA.txt"], ["file.txt", "file12.txt"]),
    ("[ab].c", ["a.c", "b.c"], ["c.c"]),
    ("[!ab].c", ["c.c"], ["a.c"]),
    ("[", ["["], ["a"]),
    ("Key.TXT", ["key.txt", "sub/KEY.txt"], ["keys.txt"]),
    ("a.b", ["a.b"], ["axb"]),
]


@pytest.mark.parametrize(("glob", "covered", "spared"), CASES)
def test_a_glob_covers_what_it_says_and_no_more(
    glob: str, covered: list[str], spared: list[str]
) -> None:
    compiled = ProtectedRule.of("rule", "why", glob)
    assert [path for path in covered if not compiled.covers(TreePath.parse(path))] == []
    assert [path for path in spared if compiled.covers(TreePath.parse(path))] == []


@pytest.mark.parametrize("glob", ["", "/", "../x", "a/../b", "a//b", "x" * 1001])
def test_a_glob_that_is_no_pattern_is_a_usage_error(glob: str) -> None:
    with pytest.raises(UsageError):
        ProtectedRule.of("rule", "why", glob)


def test_a_literal_glob_means_itself() -> None:
    glob = ProtectedRule.of("rule", "why", glob_of_path("odd [1]*/state?"))
    assert glob.covers(TreePath.parse("odd [1]*/state?/x"))
    assert not glob.covers(TreePath.parse("odd 1x/states/x"))
