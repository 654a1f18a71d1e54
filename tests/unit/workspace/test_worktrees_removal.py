"""What was made hard to remove is removed, and nothing else."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from coilclaw.kernel.errors import EnvironmentFault, LockTimeout
from coilclaw.kernel.file_lock import hold_guard
from coilclaw.kernel.messages import Json
from coilclaw.workspace.process import command
from coilclaw.workspace.process.owner import Owner
from coilclaw.workspace.tree.removal import is_remainder, remove_tree
from tests.support.children import PATIENCE_S
from tests.support.snapshot_trees import Link, build, contents

NOBODY = 65534


def as_nobody(root: Path, action: str) -> int:
    """Do something as a user whom permissions hold; return how it ended."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            build(root, {"shut/deeper/file": b"x", "open/file": b"x"})
            (root / "shut/deeper").chmod(0)
            (root / "shut").chmod(0)
            root.chmod(0o500)
            if action == "remove":
                remove_tree(root)
                code = 0
            else:
                os.unlink(root / "open/file")
                os.rmdir(root / "open")
        except PermissionError:
            code = 13
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_directories_without_permissions_are_removed(tmp_path: Path) -> None:
    place = Path(f"/var/tmp/coilclaw-test-{os.urandom(8).hex()}")
    place.mkdir()
    place.chmod(0o777)
    try:
        assert as_nobody(place / "a", "plainly") == 13, "they are in the way otherwise"
        assert as_nobody(place / "b", "remove") == 0
        assert [entry.name for entry in place.iterdir()] == ["a"]
    finally:
        remove_tree(place)
    assert not place.exists()


def test_of_two_that_remove_the_same_neither_leaves_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(tmp_path, {"tree/file": b"x"})
    chmod = os.chmod

    def remove_first(path: Path, mode: int, **more: Any) -> None:
        monkeypatch.undo()
        remove_tree(path)
        chmod(path, mode, **more)

    monkeypatch.setattr(os, "chmod", remove_first)
    remove_tree(tmp_path / "tree")
    assert list(tmp_path.iterdir()) == []


def test_files_links_and_nothing_at_all_are_removed(tmp_path: Path) -> None:
    build(tmp_path, {"file": b"x", "kept/file": b"x", "link": Link("kept"), "dead": Link("none")})
    os.mkfifo(tmp_path / "fifo")
    for name in ("file", "link", "dead", "fifo", "never/there"):
        remove_tree(tmp_path / name)
    assert contents(tmp_path) == {"kept/file": b"x"}


def test_names_that_look_like_ours_are_no_trouble(tmp_path: Path) -> None:
    build(tmp_path / "top", {"0/1/0/2": b"x", "1/0": b"x", "2/1/0/0": b"x", ".coilclaw-0": b"x"})
    remove_tree(tmp_path / "top")
    assert list(tmp_path.iterdir()) == []


def test_it_is_moved_aside_where_one_wants_it(tmp_path: Path) -> None:
    build(tmp_path, {"a/b/file": b"x", "aside/x": b"x"})
    (tmp_path / "aside").chmod(0o700)
    remove_tree(tmp_path / "a/b", aside_in=tmp_path / "aside")
    assert contents(tmp_path / "aside") == {"x": b"x"}
    with pytest.raises(EnvironmentFault, match=r"cannot remove '.*/a'") as caught:
        remove_tree(tmp_path / "a", aside_in=Path("/dev/shm"))
    assert caught.value.rule == "worktree.remove"


def test_only_what_a_dead_process_left_is_a_remainder() -> None:
    assert is_remainder(f".coilclaw-gone-{2**22 - 1}-00.tmp")
    assert not is_remainder(f".coilclaw-gone-{os.getpid()}-00.tmp")
    assert not is_remainder("src")


def test_a_child_that_was_given_the_guard_holds_it(tmp_path: Path) -> None:
    place, door = tmp_path / "guard", tmp_path / "door"
    os.mkfifo(door)
    with hold_guard(place, timeout_s=PATIENCE_S) as guard:
        pid = os.fork()
        if pid == 0:
            try:
                # It is killed while it waits for a program.
                command.run(["cat", str(door)], cwd="/", timeout_s=10 * PATIENCE_S, stdin=guard)
            finally:
                os._exit(0)
    until = Path(f"/proc/{pid}/task/{pid}/children")
    while not until.read_text().strip():
        time.sleep(0.001)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    with pytest.raises(LockTimeout), hold_guard(place, timeout_s=0.0):
        raise AssertionError("it was free")
    door.write_bytes(b"")  # the program comes to its end
    with hold_guard(place, timeout_s=PATIENCE_S):
        place.unlink()
    assert not place.exists()


def test_an_owner_is_one_process_of_one_boot() -> None:
    here = Owner.here()
    assert here.runs()
    assert Owner.of({**here.json(), "more": 1}) == here
    assert not Owner(here.pid, here.started + 1, here.boot).runs()
    assert not Owner(here.pid, here.started, "other").runs()
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    child = Owner(pid, 0, here.boot)
    assert child.runs(), "not waited for, so its id is taken"
    os.waitpid(pid, 0)
    assert not child.runs()
    others: list[Json] = [[], None, {}, {"pid": True, "started": 1, "boot": ""}, {"pid": "1"}]
    for value in others:
        assert Owner.of(value) is None
