"""Atomic files: refused, half-written and raced-for ones."""

from __future__ import annotations

import errno
import gc
import os
import resource
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from coilclaw.kernel.atomic_file import (
    MAX_PRIVATE_BYTES,
    create_private,
    read_private,
    sync_directory,
    write_atomic,
)
from coilclaw.kernel.errors import EnvironmentFault
from tests.unit.storage.worlds import fork, reap


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_directory_in_the_way_refuses_and_leaves_no_temporary(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(EnvironmentFault, match=r"cannot write .*taken") as caught:
        write_atomic(tmp_path / "taken", b"x")
    assert caught.value.rule == "file.io"
    assert os.listdir(tmp_path) == ["taken"]


def test_a_missing_directory_refuses(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="No such file"):
        write_atomic(tmp_path / "no" / "file", b"x")
    with pytest.raises(EnvironmentFault, match="No such file"):
        sync_directory(tmp_path / "no")


def test_a_full_disk_leaves_the_old_content_and_no_temporary(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"old")

    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        with pytest.raises(EnvironmentFault, match=os.strerror(errno.EFBIG)):
            write_atomic(target, b"x" * 5000)

    assert reap(fork(work)) == 0
    assert (os.listdir(tmp_path), target.read_bytes()) == (["file"], b"old")


@pytest.mark.parametrize("sync", [True, False])
def test_content_is_replaced_whole(tmp_path: Path, sync: bool) -> None:
    target = tmp_path / "file"
    for data in (b"one", b"", b"x" * 100_000):
        write_atomic(target, data, sync=sync)
        assert target.read_bytes() == data
    assert os.listdir(tmp_path) == ["file"]


def test_a_link_is_replaced_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"untouched")
    (tmp_path / "link").symlink_to("elsewhere")
    write_atomic(tmp_path / "link", b"new")
    assert (tmp_path / "elsewhere").read_bytes() == b"untouched"
    assert not (tmp_path / "link").is_symlink()


def test_the_mode_obeys_the_umask_unless_private(tmp_path: Path) -> None:
    def work() -> None:
        os.umask(0o027)
        write_atomic(tmp_path / "shared", b"x", mode=0o755)
        os.umask(0o777)
        write_atomic(tmp_path / "private", b"x", mode=0o600)
        create_private(tmp_path / "key", b"k")

    assert reap(fork(work)) == 0
    modes = {name: _mode(tmp_path / name) for name in ("shared", "private", "key")}
    assert modes == {"shared": 0o750, "private": 0o600, "key": 0o600}


def test_a_reader_sees_one_whole_content_or_the_other(tmp_path: Path) -> None:
    target = tmp_path / "file"
    contents = [b"a" * 300_000, b"b" * 300_000]
    write_atomic(target, contents[0], sync=False)

    def work() -> None:
        for number in range(400):
            write_atomic(target, contents[number % 2], sync=False)

    child = fork(work)
    seen = {target.read_bytes()}
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        seen.add(target.read_bytes())
    seen.add(target.read_bytes())
    assert seen <= set(contents)
    assert contents[1] in seen


def test_a_private_file_that_exists_is_kept(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"first")
    assert create_private(tmp_path / "key", b"second") == b"first"
    assert (tmp_path / "key").read_bytes() == b"first"


def test_a_private_file_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"bait")
    (tmp_path / "key").symlink_to("elsewhere")
    with pytest.raises(EnvironmentFault, match=r"cannot read .*key"):
        create_private(tmp_path / "key", b"mine")


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["directory", "fifo"])
def test_a_private_file_that_is_none_is_refused(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "key")
    gc.collect()
    before = os.listdir("/proc/self/fd")
    with pytest.raises(EnvironmentFault, match="key is not a regular file"):
        create_private(tmp_path / "key", b"mine")
    assert os.listdir("/proc/self/fd") == before


def test_a_private_file_has_a_bound(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="would be larger"):
        create_private(tmp_path / "key", b"x" * (MAX_PRIVATE_BYTES + 1))
    (tmp_path / "huge").write_bytes(b"x" * (MAX_PRIVATE_BYTES + 1))
    with pytest.raises(EnvironmentFault, match="is larger"):
        create_private(tmp_path / "huge", b"x")
    whole = b"x" * MAX_PRIVATE_BYTES
    assert create_private(tmp_path / "fits", whole) == whole


def test_reading_a_private_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    assert read_private(tmp_path / "key") is None


def test_many_processes_that_race_for_a_private_file_agree(tmp_path: Path) -> None:
    for race in range(10):
        key = tmp_path / f"key-{race}"
        start, go = os.pipe()
        answers, answer = os.pipe()

        def work(key: Path = key, start: int = start, go: int = go, answer: int = answer) -> None:
            os.close(go)
            os.read(start, 1)
            os.write(answer, create_private(key, os.urandom(32)))

        children = [fork(work) for _ in range(8)]
        os.close(go)  # end of file is the signal, for all at once
        os.close(answer)
        assert [reap(child) for child in children] == [0] * 8
        with open(answers, "rb") as file:
            told = file.read()
        os.close(start)
        assert told == key.read_bytes() * 8
        assert len(told) == 8 * 32
    assert len(os.listdir(tmp_path)) == 10
