"""Names as git quotes them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from coilclaw.changes.formats import git_header
from tests.support.answer_rendering import quote_name


@pytest.mark.parametrize(
    "text",
    ['"', '"a', 'a"', '"\\"', '"\\x"', '"\\400"', '"\\08"', '"\\1"', '"a\\', ""],
)
def test_what_is_not_properly_quoted_is_not_read(text: str) -> None:
    assert git_header.unquote(text) is None


@pytest.mark.parametrize(
    ("text", "name", "rest"),
    [
        ('"a"', "a", ""),
        ('"a\\"b" c', 'a"b', " c"),
        ('"\\303\\244"', "ä", ""),
        ('"ä"', "ä", ""),
        ('"\\a\\b\\f\\n\\r\\t\\v\\\\"', "\a\b\f\n\r\t\v\\", ""),
        ('"\\377"', "\udcff", ""),
        ('""', "", ""),
    ],
)
def test_quoted_names_are_read(text: str, name: str, rest: str) -> None:
    assert git_header.unquote(text) == (name, rest)


def test_only_names_that_need_it_are_quoted() -> None:
    assert quote_name("a b/ä.txt") == "a b/ä.txt"
    assert quote_name('a"\t\x01\x7f\\') == '"a\\"\\t\\001\\177\\\\"'


@pytest.mark.parametrize("text", ['"a/x', '"a/x"b', '"a/x" '])
def test_a_side_with_something_after_its_quotes_is_not_read(text: str) -> None:
    assert git_header.read_side(text) is None


def test_a_side_ends_at_a_tab() -> None:
    assert git_header.read_side("a/x y\t2020") == "a/x y"
    assert git_header.read_side('"a/x y"\t2020') == "a/x y"
    assert git_header.read_name("x\ty") == "x\ty"
    assert git_header.read_name('"x" ') is None


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a/x b/x", ("a/x", "b/x")),
        ("a/x b/x b/x b/x", ("a/x b/x", "b/x b/x")),
        ('"a/ä" b/y', ("a/ä", "b/y")),
        ('a/x y "b/\\303\\244"', ("a/x y", "b/ä")),
        ('"a/1" "b/2"', ("a/1", "b/2")),
        ("a/x b/y", None),
        ("a/x", None),
        ('"a/x', None),
        ('"a/x"b/x', None),
        ('a/x "b/x" b/"', None),
        ("", None),
    ],
)
def test_pairs(text: str, names: tuple[str, str] | None) -> None:
    assert git_header.read_pair(text) == names


@pytest.mark.parametrize("name", ["ä", 'q"q', "tab\there", "back\\slash", "\x01", "new\nline"])
def test_git_quotes_alike(tmp_path: Path, name: str) -> None:
    env = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    (tmp_path / name).write_bytes(b"")
    for quoting in ("true", "false"):
        command = ["git", "-c", f"core.quotePath={quoting}", "diff", "--no-index"]
        shown = subprocess.run(
            [*command, "--", "/dev/null", name],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            check=False,
        ).stdout.decode()
        first = shown.split("\n")[0].removeprefix("diff --git ")
        assert git_header.read_pair(first) == (f"a/{name}", f"b/{name}")
        if quoting == "false":
            assert first == f"{quote_name(f'a/{name}')} {quote_name(f'b/{name}')}"
