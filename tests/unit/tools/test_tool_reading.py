"""``file_read`` and ``file_list``, and the path attacks on them."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from coilclaw.agent.tools import file_read
from coilclaw.agent.tools.contract import ToolLimits
from coilclaw.agent.tools.file_read import FILE_BYTES, FileList, FileRead
from coilclaw.kernel.errors import PathRefused
from coilclaw.kernel.messages import ToolResult
from tests.support.scale import scaled
from tests.support.toolworld import World, world
from tests.support.trees import make

SECRET = "the secret\n"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path.resolve()) as made:
        make(made.workspace, {"a.txt": b"one\ntwo\nthree\n", "sub/b.txt": b"b"})
        make(tmp_path / "outside", {"secret": SECRET.encode()})
        yield made


def refused(here: World, path: str) -> str:
    """The rule of a refusal, before or while it is performed; nothing of the secret comes out."""
    try:
        told = here.call(FileRead(), path=path)
    except PathRefused as problem:
        return problem.rule
    assert not told.success
    assert told.output == ""
    assert SECRET.strip() not in str(told)
    return str(told.metadata["rule"])


@pytest.mark.parametrize(
    "path",
    [
        *("/etc/passwd", "../outside/secret", "sub/../../outside/secret", "./../outside/secret"),
        *("~/outside/secret", "~root/.profile", "//etc/passwd", "/proc/self/root/etc/passwd"),
        *("/proc/self/cwd/secret", "/proc/self/fd/0", "/dev/null", ".."),
    ],
)
def test_a_path_out_of_the_workspace_is_refused(here: World, path: str) -> None:
    assert refused(here, path) == "path.outside"


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("$HOME/outside/secret", "file.missing"),
        ("%2e%2e/outside/secret", "file.missing"),
        ("..\\outside\\secret", "file.missing"),
        ("..%c0%af/secret", "file.missing"),
        ("\uff0e\uff0e/outside/secret", "path.parent"),
        ("\\\\server\\share", "file.missing"),
        ("a.txt::$DATA", "file.missing"),
        ("CON", "file.missing"),
        ("a.txt.", "file.missing"),
        ("a.txt ", "file.missing"),
        (".git/config", "path.git"),
        (".GIT/config", "path.git"),
        ("git~1/config", "path.git"),
        (".g\u200cit/config", "path.git"),
        ("a\0b", "path.nul"),
        ("a\nb", "path.control"),
        ("\x1b[2Jx", "path.control"),
        ("\ud800", "path.encoding"),
        ("x" * 300, "path.long"),
        ("a/" * 2200 + "b", "path.long"),
        ("a.txt/b", "file.unfit"),
        (".", "path"),
        ("sub", "file.kind"),
        ("missing", "file.missing"),
    ],
)
def test_other_spellings_are_no_way_out(here: World, path: str, rule: str) -> None:
    assert refused(here, path) == rule


def test_symlink_as_leaf_and_as_ancestor_is_refused(here: World) -> None:
    (here.workspace / "leaf").symlink_to("../outside/secret")
    (here.workspace / "dir").symlink_to(here.workspace.parent / "outside")
    (here.workspace / "far").symlink_to("/etc/passwd")
    assert refused(here, "leaf") == "path.symlink"
    assert refused(here, "dir/secret") == "path.symlink"
    assert refused(here, "far") == "path.symlink"
    (here.workspace / "gone").symlink_to("nothing")
    assert refused(here, "gone") == "file.unfit"
    (here.workspace / "in").symlink_to("sub/b.txt")
    assert here.call(FileRead(), path="in").output == "b"


def test_symlink_swapped_between_check_and_use_leads_nowhere(here: World) -> None:
    """Two links and a directory change places all the time; the secret never comes out."""
    (here.workspace / "real").mkdir()
    (here.workspace / "real" / "secret").write_text("harmless\n")
    link, other = here.workspace / "x", here.workspace / "y"
    link.symlink_to("real")
    other.symlink_to("../outside")
    over = threading.Event()

    def swap() -> None:
        third = here.workspace / "z"
        while not over.is_set():
            os.rename(link, third)
            os.rename(other, link)
            os.rename(third, other)

    thread = threading.Thread(target=swap)
    thread.start()
    seen = set()
    try:
        for _ in range(scaled(full=3000, default=300)):
            try:
                told = here.call(FileRead(), path="x/secret")
            except PathRefused as problem:
                seen.add(problem.rule)
                continue
            assert SECRET.strip() not in told.output
            seen.add("harmless" if told.success else str(told.metadata["rule"]))
    finally:
        over.set()
        thread.join()
    assert seen <= {"harmless", "file.missing", "file.unfit", "path.symlink", "path.outside"}


def test_a_call_prepared_before_the_swap_does_not_follow_the_link(here: World) -> None:
    prepared = FileRead().prepare({"path": "sub/b.txt"}, here.context)
    os.rename(here.workspace / "sub", here.workspace / "old")
    (here.workspace / "sub").symlink_to("../outside")
    (here.workspace.parent / "outside" / "b.txt").write_text(SECRET)
    with pytest.raises(PathRefused) as denied:
        prepared.perform()
    assert denied.value.rule == "path.symlink"


def test_a_link_to_a_forbidden_place_inside_is_refused(here: World) -> None:
    make(here.workspace, {"keys/k": SECRET.encode()})
    (here.workspace / "link").symlink_to("keys/k")
    kept = here.using(forbidden_paths=(f"{here.workspace}/keys",))
    assert refused(kept, "link") == "path.forbidden"
    assert refused(kept, "keys/k") == "path.forbidden"
    own = here.using(own_paths=(f"{here.workspace}/keys",))
    assert refused(own, "link") == "path.own"
    assert here.call(FileRead(), path="link").output == SECRET


def test_fifo_socket_and_device_do_not_block(here: World) -> None:
    os.mkfifo(here.workspace / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(here.workspace / "sock"))
        assert refused(here, "sock") == "file.kind"
    assert refused(here, "fifo") == "file.kind"
    assert here.call(FileRead(), path="fifo").error == "'fifo' is a FIFO, not a file"
    (here.workspace / "null").symlink_to("/dev/null")
    assert refused(here, "null") == "path.symlink"


def test_a_hard_link_is_read_as_the_file_it_is(here: World) -> None:
    os.link(here.workspace / "a.txt", here.workspace / "twin")
    assert here.call(FileRead(), path="twin").output == "one\ntwo\nthree\n"


def test_sparse_and_huge_files_are_refused_by_their_size(here: World) -> None:
    with (here.workspace / "huge").open("wb") as file:
        file.truncate(2**40)
    assert refused(here, "huge") == "file.unfit"
    assert "larger than the bound" in str(here.call(FileRead(), path="huge").error)
    with (here.workspace / "edge").open("wb") as file:
        file.truncate(FILE_BYTES)
    assert refused(here, "edge") == "file.binary"


@pytest.mark.parametrize("content", [b"\xff\xfe", b"ok\n\x80", b"a\0b"])
def test_what_is_no_text_is_told_so(here: World, content: bytes) -> None:
    (here.workspace / "bin").write_bytes(content)
    assert refused(here, "bin") == "file.binary"


def test_a_whole_file_is_given_exactly(here: World) -> None:
    for content in (b"", b"x", b"a\r\nb", "\ufeffé\n".encode(), b"\n\n"):
        (here.workspace / "f").write_bytes(content)
        told = here.call(FileRead(), path="f")
        assert told.success
        assert told.output.encode() == content
    assert here.call(FileRead(), path="a.txt") == ToolResult(
        True,
        "one\ntwo\nthree\n",
        None,
        {"bytes": 14, "lines": 3, "sha256": sha256(b"one\ntwo\nthree\n").hexdigest()},
    )


def test_lines_can_be_chosen(here: World) -> None:
    told = here.call(FileRead(), path="a.txt", offset=2, limit=1)
    assert told.output == "two\n[lines 2 to 2 of 3; continue with offset 3]\n"
    assert (
        here.call(FileRead(), path="a.txt", offset=2).output == "two\nthree\n[lines 2 to 3 of 3]\n"
    )
    assert here.call(FileRead(), path="a.txt", offset=4).metadata["rule"] == "file.lines"


def test_what_does_not_fit_is_cut_at_a_line_and_said(here: World) -> None:
    (here.workspace / "long").write_text("".join(f"line {n}\n" for n in range(1000)))
    small = here.using(limits=ToolLimits(output_bytes=400))
    told = small.call(FileRead(), path="long")
    assert len(told.output.encode()) <= 400
    last = told.metadata["last"]
    assert told.output.endswith(f"[lines 1 to {last} of 1000; continue with offset {last + 1}]\n")  # type: ignore[operator] # a number
    (here.workspace / "wide").write_text("é" * 1000)
    told = small.call(FileRead(), path="wide")
    assert len(told.output.encode()) <= 400
    assert "without the last 1760 bytes" in told.output


def test_names_that_only_other_systems_refuse_can_be_read(here: World) -> None:
    for name in ("aux.c", "trailing.", "back\\slash", "c:x"):
        (here.workspace / name).write_text(name)
        assert here.call(FileRead(), path=name).output == name


def test_outside_only_where_policy_lets_tools_out(here: World) -> None:
    out = here.using(workspace_only=False)
    secret = f"{here.workspace.parent}/outside/secret"
    assert out.call(FileRead(), path=secret).output == SECRET
    assert out.call(FileRead(), path="../outside/secret").output == SECRET
    (here.workspace / "leaf").symlink_to("../outside/secret")
    assert out.call(FileRead(), path="leaf").output == SECRET
    assert out.call(FileRead(), path="a.txt").success
    assert refused(
        out.using(forbidden_paths=(str(here.workspace.parent / "outside"),)), secret
    ) == ("path.forbidden")
    (here.home / "memory").write_text("x")
    assert refused(out, str(here.home / "memory")) == "path.own"
    assert refused(out, "/proc/self/root/etc/passwd") == "path.unknown"


def test_a_directory_is_listed_in_order(here: World) -> None:
    make(here.workspace, {".hidden": b"", "z/deep/er": b"1234"})
    (here.workspace / "link").symlink_to("../outside")
    os.mkfifo(here.workspace / "pipe")
    told = here.call(FileList())
    assert told == ToolResult(
        True,
        "file             14 a.txt\n"
        "link                link -> ../outside\n"
        "other               pipe\n"
        "directory           sub/\n"
        "directory           z/",
        None,
        {"entries": 5, "cut": False},
    )
    assert ".hidden" in here.call(FileList(), hidden=True).output
    assert here.call(FileList(), path="z", recursive=True).output == (
        "directory           deep/\nfile              4 deep/er"
    )
    assert here.call(FileList(), path="z", recursive=True, depth=1).output == (
        "directory           deep/"
    )


def test_links_are_listed_and_not_followed(here: World) -> None:
    (here.workspace / "out").symlink_to("../outside")
    (here.workspace / "loop").symlink_to(".")
    told = here.call(FileList(), recursive=True)
    assert "secret" not in told.output
    assert told.output.count("a.txt") == 1
    with pytest.raises(PathRefused):
        here.call(FileList(), path="..")
    with pytest.raises(PathRefused, match="leaves the tree"):
        here.call(FileList(), path="out")
    (here.workspace / "inner").symlink_to("sub")
    assert here.call(FileList(), path="inner").output == "file              1 b.txt"


def test_a_directory_swapped_for_a_link_while_it_is_listed_is_left_out(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown_line = file_read._line

    def swap(fd: int, prefix: str, name: str, info: os.stat_result) -> str:
        if name == "sub":
            os.rename(here.workspace / "sub", here.workspace / "old")
            (here.workspace / "sub").symlink_to("../outside")
        return shown_line(fd, prefix, name, info)

    monkeypatch.setattr(file_read, "_line", swap)
    told = here.call(FileList(), recursive=True)
    assert "secret" not in told.output
    assert "left out: sub/" in told.output


def test_what_is_no_directory_cannot_be_listed(here: World) -> None:
    assert here.call(FileList(), path="a.txt").metadata["rule"] == "file.kind"
    (here.workspace / "empty").touch()
    assert here.call(FileList(), path="empty").metadata["rule"] == "file.kind"
    assert here.call(FileList(), path="nothing").metadata["rule"] == "file.missing"
    (here.workspace / "void").mkdir()
    assert here.call(FileList(), path="void").output == "the directory is empty"


def test_forbidden_directories_and_git_are_not_descended_into(here: World) -> None:
    make(here.workspace, {"keys/k": b"", ".git/config": b"", "ok/x": b""})
    kept = here.using(forbidden_paths=(f"{here.workspace}/keys",))
    told = kept.call(FileList(), recursive=True, hidden=True)
    assert "keys/k" not in told.output
    assert "left out: keys/" in told.output
    assert "config" not in told.output
    assert "ok/x" in told.output
    with pytest.raises(PathRefused, match="names"):
        kept.call(FileList(), path=".git")


def test_very_many_names_are_cut_and_said(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    (here.workspace / "many").mkdir()
    for number in range(30):
        (here.workspace / "many" / f"{number:02}").touch()
    told = here.call(FileList(), path="many", max_entries=10)
    assert told.metadata == {"entries": 10, "cut": True}
    assert told.output.endswith("[cut: only the first 10 entries are shown]")
    small = here.using(limits=ToolLimits(output_bytes=300)).call(FileList(), path="many")
    assert len(small.output.encode()) <= 300
    assert small.metadata["cut"] is True
    monkeypatch.setattr(file_read, "MAX_SCANNED", 5)
    assert here.call(FileList(), path="many").metadata == {"entries": 5, "cut": True}


def test_misleading_names_are_made_visible(here: World) -> None:
    (here.workspace / "void").mkdir()
    for name in (b"a\nfile 1 b", b"\x1b[2J", b"\xff", "\u202egpj".encode(), "é".encode()):
        Path(os.fsdecode(bytes(here.workspace / "void") + b"/" + name)).touch()
    told = here.call(FileList(), path="void")
    assert told.output.splitlines() == [
        "file              0 \\u001b[2J",
        "file              0 a\\u000afile 1 b",
        "file              0 é",
        "file              0 \\u202egpj",
        "file              0 \\udcff",
    ]
