from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from coilclaw.kernel.effects import Place
from coilclaw.workspace.tree.path_lookup import PathLookup


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    base = tmp_path.resolve()
    workspace = base / "w"
    (workspace / "sub").mkdir(parents=True)
    (workspace / "file").write_text("x")
    (base / "outside").mkdir()
    (base / "outside" / "secret").write_text("s")
    return workspace


def located(tree: Path, given: str) -> Place:
    return PathLookup(tree, home=str(tree.parent)).locate(given)


def test_a_file_a_directory_and_nothing(tree: Path) -> None:
    assert located(tree, "file") == Place("file", f"{tree}/file", f"{tree}/file", "file")
    assert located(tree, "sub/") == Place("sub/", f"{tree}/sub", f"{tree}/sub", "directory")
    assert located(tree, "a/b") == Place("a/b", f"{tree}/a/b", f"{tree}/a/b", "missing")
    assert located(tree, ".") == Place(".", str(tree), str(tree), "directory")


@pytest.mark.parametrize("given", ["", "a\0b", "a\nb", "\ud800", "x" * 5000])
def test_a_path_that_cannot_be_told_has_no_real_one(tree: Path, given: str) -> None:
    place = located(tree, given)
    assert (place.real, place.kind) == (None, "missing")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("../outside/secret", "/outside/secret"),
        ("sub/../../outside/secret", "/outside/secret"),
        ("./sub/.././//../outside/secret", "/outside/secret"),
        ("~/outside/secret", "/outside/secret"),
    ],
)
def test_dots_and_a_tilde_lead_out(tree: Path, given: str, expected: str) -> None:
    path = f"{tree.parent}{expected}"
    assert located(tree, given) == Place(given, path, path, "file")


def test_absolute_paths_and_doubled_slashes(tree: Path) -> None:
    assert located(tree, "/etc/../etc/passwd").lexical == "/etc/passwd"
    assert located(tree, "//etc/passwd").lexical == "/etc/passwd"
    assert located(tree, f"{tree}/file").real == f"{tree}/file"


def test_a_variable_is_a_name_like_any_other(tree: Path) -> None:
    assert located(tree, "$HOME/x").real == f"{tree}/$HOME/x"
    assert located(tree, "%2e%2e/x").real == f"{tree}/%2e%2e/x"


def test_the_home_of_somebody_else(tree: Path) -> None:
    assert located(tree, "~root/x").lexical == os.path.expanduser("~root") + "/x"
    unknown = located(tree, "~no-such-user-here/x")
    assert unknown == Place("~no-such-user-here/x", f"{tree}/~no-such-user-here/x", None)


def test_a_tilde_without_a_home_is_unknown(tree: Path) -> None:
    assert PathLookup(tree, home="").locate("~/x").real is None
    assert PathLookup(tree, home="relative").locate("~/x").real is None


def test_a_tilde_in_the_middle_is_a_name(tree: Path) -> None:
    assert located(tree, "a/~/b").real == f"{tree}/a/~/b"


def test_home_comes_from_the_caller_only(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/nowhere/at/all")
    assert PathLookup(tree, home="/else/where").locate("~/x").real == "/else/where/x"
    assert PathLookup(tree).locate("~/x").real is None


def test_links_are_followed_as_leaf_and_as_ancestor(tree: Path) -> None:
    (tree / "leaf").symlink_to("../outside/secret")
    (tree / "dir").symlink_to(tree.parent / "outside")
    secret = f"{tree.parent}/outside/secret"
    assert located(tree, "leaf") == Place("leaf", f"{tree}/leaf", secret, "file")
    assert located(tree, "dir/secret") == Place("dir/secret", f"{tree}/dir/secret", secret, "file")
    assert located(tree, "dir/new").real == f"{tree.parent}/outside/new"


def test_a_dangling_link_leads_to_where_a_file_would_come_to_be(tree: Path) -> None:
    (tree / "link").symlink_to("../outside/new")
    assert located(tree, "link") == Place(
        "link", f"{tree}/link", f"{tree.parent}/outside/new", "missing"
    )
    (tree / "odd").symlink_to("nothing/../../x")
    assert located(tree, "odd").real is None


def test_loops_and_long_chains_of_links_have_no_end(tree: Path) -> None:
    (tree / "a").symlink_to("b")
    (tree / "b").symlink_to("a")
    assert located(tree, "a/x").real is None
    (tree / "c0").symlink_to("file")
    for number in range(60):
        (tree / f"c{number + 1}").symlink_to(f"c{number}")
    assert located(tree, "c30").real == f"{tree}/file"
    assert located(tree, "c60").real is None


@pytest.mark.parametrize(
    "given", ["/proc/self/root/etc/passwd", "/proc/self/cwd/file", "/proc/self/fd/0", "/dev/fd/3"]
)
def test_the_links_of_proc_mean_something_else_to_everybody(tree: Path, given: str) -> None:
    assert located(tree, given).real is None


def test_fifo_socket_and_device_are_something_else(tree: Path) -> None:
    os.mkfifo(tree / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(tree / "sock"))
        assert located(tree, "sock").kind == "other"
    assert located(tree, "fifo").kind == "other"
    assert located(tree, "/dev/null").kind == "other"


def test_below_a_file_stands_nothing(tree: Path) -> None:
    assert located(tree, "file/x") == Place("file/x", f"{tree}/file/x", f"{tree}/file/x", "missing")


def test_a_workspace_named_through_a_link(tree: Path) -> None:
    (tree.parent / "alias").symlink_to(tree)
    place = PathLookup(tree.parent / "alias").locate("file")
    assert place == Place("file", f"{tree.parent}/alias/file", f"{tree}/file", "file")
