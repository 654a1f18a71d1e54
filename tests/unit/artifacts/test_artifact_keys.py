"""Keys: whatever passes is a harmless path below any directory."""

from __future__ import annotations

import posixpath
from pathlib import PurePosixPath, PureWindowsPath

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coilclaw.kernel.errors import PathRefused
from coilclaw.traces.artifacts import store

SEGMENT = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,20}[A-Za-z0-9_-]", fullmatch=True)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/",
        "/a",
        "a/",
        "a//b",
        ".",
        "..",
        "a/../b",
        "a/./b",
        ".hidden",
        "a/.coilclaw/b",
        "-option",
        "a b",
        "a\\b",
        "a\0b",
        "a\nb",
        "a\n",
        "é",
        "a%2e",
        "a:b",
        "a*",
        "~",
        "con",
        "a/NUL.txt",
        "git~1",
        "a.",
        "x" * 129,
        "/".join(["a"] * 17),
        "/".join(["a" * 100] * 6),
    ],
)
def test_a_key_that_is_no_harmless_path_is_refused(key: str) -> None:
    with pytest.raises(PathRefused) as refused:
        store.check_key(key)
    assert (refused.value.rule, refused.value.path) == ("artifact.key", key)
    assert not store.is_safe_key(key)


@pytest.mark.parametrize(
    "key",
    [
        "a",
        "trajectories/0b5e-42/agent_trace.json",
        "trajectories/x/bundles/00012.bundle",
        "_a/b-c",
        "x" * 128,
        "/".join(["a"] * 16),
    ],
)
def test_its_neighbour_is_not(key: str) -> None:
    assert store.check_key(key) == key
    assert store.is_safe_key(key)


def test_only_a_prefix_may_be_empty() -> None:
    assert store.check_key_prefix("") == ""
    assert store.check_key_prefix("a/b") == "a/b"
    with pytest.raises(PathRefused):
        store.check_key_prefix("a/")


@given(st.one_of(st.text(max_size=40), st.text("aA.:/\\-_~0 \n", max_size=12)))
@example("a/..")
@example("con/x")
def test_what_passes_stays_below_its_directory_on_every_system(key: str) -> None:
    if not store.is_safe_key(key):
        return
    assert posixpath.normpath(key) == key
    assert not posixpath.isabs(key)
    assert not PureWindowsPath(key).is_absolute()
    assert not PureWindowsPath(key).drive
    assert not any(part.startswith(".") for part in PurePosixPath(key).parts)
    assert key.isascii()
    assert key.isprintable()


@given(st.lists(SEGMENT, min_size=1, max_size=5))
def test_plain_names_pass_but_for_those_that_a_system_keeps_to_itself(names: list[str]) -> None:
    special = {"con", "prn", "aux", "nul", *(f"{x}{n}" for x in ("com", "lpt") for n in range(10))}
    if not any(name.split(".")[0].lower() in special for name in names):
        assert store.check_key("/".join(names)) == "/".join(names)
