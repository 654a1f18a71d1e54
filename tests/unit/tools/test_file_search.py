"""``file_search``: what it finds, what it leaves out, and where it may not look."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coilclaw.agent.tools import file_read
from coilclaw.agent.tools.contract import ToolLimits
from coilclaw.agent.tools.file_read import FileSearch
from coilclaw.kernel.errors import PathRefused
from tests.support.toolworld import World, world
from tests.support.trees import make


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path.resolve()) as made:
        make(
            made.workspace,
            {
                "a.txt": b"one\ntwo\nThree two\r\n",
                "sub/b.py": b"def two(): ...\n",
                "binary": b"two\0two\n",
                "latin": b"two \xff\n",
                ".git/config": b"two\n",
            },
        )
        make(tmp_path / "outside", {"secret": b"two secrets\n"})
        (made.workspace / "link").symlink_to(tmp_path / "outside/secret")
        yield made


def test_it_names_path_line_and_text(here: World) -> None:
    told = here.call(FileSearch(), query="two")
    assert told.success
    assert told.output == "a.txt:2: two\na.txt:3: Three two\nsub/b.py:1: def two(): ..."


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"query": "three"}, "nothing was found"),
        ({"query": "three", "ignore_case": True}, "a.txt:3: Three two"),
        ({"query": "two", "path": "sub"}, "sub/b.py:1: def two(): ..."),
        ({"query": "two", "path": "a.txt"}, "a.txt:2: two\na.txt:3: Three two"),
        ({"query": ".*"}, "nothing was found"),
    ],
)
def test_where_and_how(here: World, arguments: dict[str, str], expected: str) -> None:
    assert here.call(FileSearch(), **arguments).output == expected


@pytest.mark.parametrize("path", ["../outside", "/etc", "link", ".git"])
def test_it_does_not_leave_the_workspace(here: World, path: str) -> None:
    try:
        told = here.call(FileSearch(), query="two", path=path)
    except PathRefused:
        return
    assert not told.success
    assert "secret" not in told.output


def test_what_is_forbidden_is_left_out_and_counted(here: World) -> None:
    forbidden = here.using(forbidden_paths=(str(here.workspace / "sub"),))
    told = forbidden.call(FileSearch(), query="two")
    assert "sub/b.py" not in told.output
    assert "[left out: 1 files that are too large or changed]" in told.output
    with pytest.raises(PathRefused):
        forbidden.call(FileSearch(), query="two", path="sub/b.py")


def test_what_is_missing_is_said(here: World) -> None:
    told = here.call(FileSearch(), query="two", path="nowhere")
    assert (told.success, told.metadata["rule"]) == (False, "file.missing")


def test_matches_and_lines_are_bounded(here: World) -> None:
    many = b"two" + b"x" * 1000 + b"\n"
    make(here.workspace, {"many.txt": many * (file_read.MAX_MATCHES + 5)})
    told = here.call(FileSearch(), query="two", path="many.txt")
    assert told.metadata["matches"] == file_read.MAX_MATCHES
    assert told.metadata["cut"] is True
    small = here.using(limits=ToolLimits(output_bytes=500))
    assert len(small.call(FileSearch(), query="two", path="many.txt").output) <= 500
    lines = told.output.splitlines()
    assert max(map(len, lines)) < file_read.MAX_LINE_CHARS + 50
    assert lines[-1].startswith("[cut:") or "are cut here" in told.output


def test_a_file_that_is_too_large_is_left_out(here: World) -> None:
    make(here.workspace, {"large.txt": b"two\n" * (file_read.MAX_FILE_BYTES // 4 + 1)})
    told = here.call(FileSearch(), query="two")
    assert "large.txt" not in told.output
    assert "[left out: 1 files" in told.output


def test_files_with_secrets_are_left_out_and_counted(here: World) -> None:
    for name in (".env", "deploy.key", ".env.sample"):
        (here.workspace / name).write_text("TOKEN=word\n")
    told = here.call(FileSearch(), query="TOKEN=")
    assert told.output == (
        ".env.sample:1: TOKEN=word\n[left out: 2 files that hold secrets, by their names; name one "
        "as 'path' to ask for it]"
    )
    # Named, the file is searched: the gate has asked about it by then.
    assert here.call(FileSearch(), query="TOKEN=", path=".env").output == ".env:1: TOKEN=word"
