"""Checkpoints that are written by themselves: to a file, a ref, an address; or not, and said so."""

from __future__ import annotations

import http.server
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from coilclaw.agent import checkpoints as writing
from coilclaw.agent.checkpoints import (
    CheckpointPlace,
    CheckpointState,
    CheckpointWriter,
    read_checkpoint_state,
)
from coilclaw.agent.receipts.book import ReceiptBook
from coilclaw.agent.receipts.verification import verify
from coilclaw.kernel import checkpoint
from coilclaw.kernel.checkpoint import Checkpoint, SignedCheckpoint, parse_checkpoints
from tests.unit.receipts.test_receipts import fill, gone
from tests.unit.storage.worlds import fork, reap

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STAMP = "2026-01-01T00:00:00.000000Z"
REF = "refs/coilclaw/receipts"


class Home:
    """A home whose receipts are stated somewhere."""

    def __init__(self, root: Path, place: CheckpointPlace | None = None, every: int = 3) -> None:
        self.root = root / "home"
        self.root.mkdir(exist_ok=True)
        self.file = root / "checkpoints"
        self.place = place or CheckpointPlace("file", str(self.file))
        self.every = every
        self.key: checkpoint.SigningKey | None = None

    def writer(self, **environ: str) -> CheckpointWriter:
        return CheckpointWriter(
            self.place,
            self.every,
            home=self.root,
            environ=environ,
            signing_key=lambda: self.key,
            now=lambda: NOW,
        )

    def book(self, **environ: str) -> ReceiptBook:
        book = ReceiptBook(
            self.root / "r.log",
            key_path=self.root / "keys" / "k",
            after=self.writer(**environ).after_receipt,
        )
        book.create()
        return book

    def fill(self, count: int, **environ: str) -> None:
        with self.book(**environ) as book:
            fill(book, count)

    def kept(self) -> list[SignedCheckpoint]:
        text = self.file.read_text(encoding="utf-8") if self.file.exists() else ""
        return list(parse_checkpoints(text))

    def sizes(self) -> list[int]:
        return [one.checkpoint.size for one in self.kept()]


def test_one_is_written_every_so_many_receipts(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.fill(7)
    assert home.sizes() == [3, 6]
    assert (home.file.stat().st_mode & 0o777, read_checkpoint_state(home.root).size) == (0o600, 6)


def test_processes_that_write_few_receipts_count_together(tmp_path: Path) -> None:
    home = Home(tmp_path)
    for _ in range(7):
        home.fill(1)
    assert home.sizes() == [3, 6]


def test_many_processes_write_as_many_as_are_due(tmp_path: Path) -> None:
    home = Home(tmp_path, every=10)
    home.book()
    children = [fork(lambda: home.fill(10)) for _ in range(8)]
    assert [reap(child) for child in children] == [0] * 8
    sizes = home.sizes()
    assert sizes == sorted(set(sizes))
    assert all(later - one >= 10 for one, later in pairwise(sizes))
    assert 70 < sizes[-1] <= 80
    assert verify(home.book(), gone).ok


def test_they_are_signed_where_there_is_a_key(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.fill(3)
    home.key = checkpoint.create_key(tmp_path / "key")
    home.fill(3)
    assert [one.judge(home.key.public) for one in home.kept()] == ["unsigned", "valid"]


def git(directory: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(directory), *words], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_ref_of_our_own_repository_has_a_commit_each(tmp_path: Path) -> None:
    home = Home(tmp_path, CheckpointPlace("git-ref", REF))
    home.fill(6)
    repository = home.root / "checkpoints.git"
    assert len(git(repository, "rev-list", REF).split()) == 2
    (last,) = parse_checkpoints(git(repository, "show", f"{REF}:checkpoint"))
    assert last.checkpoint.size == 6
    assert git(repository, "log", "-1", "--format=%s", REF) == f"{last.checkpoint.origin} 6\n"
    git(repository, "fsck", "--strict")


@pytest.mark.parametrize("bare", [True, False])
def test_a_ref_of_another_repository_leaves_the_rest_of_it_alone(
    tmp_path: Path, bare: bool
) -> None:
    other = tmp_path / "other"
    git(tmp_path, "init", "-q", "-b", "main", *(["--bare"] if bare else []), str(other))
    hooks = (other if bare else other / ".git") / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("reference-transaction", "post-commit"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {tmp_path / 'ran'}\n")
        (hooks / name).chmod(0o755)
    home = Home(tmp_path, CheckpointPlace("git-ref", REF, other))
    home.fill(3)
    assert git(other, "for-each-ref", "--format=%(refname)").split() == [REF]
    assert git(other, "show", f"{REF}:checkpoint").splitlines()[1] == "3"
    assert not (tmp_path / "ran").exists()


class Collector(http.server.BaseHTTPRequestHandler):
    """Takes what is posted, or refuses it."""

    status = 204
    taken: list[tuple[str | None, str]]

    def do_POST(self) -> None:
        length = int(self.headers["content-length"])
        self.taken.append((self.headers["authorization"], self.rfile.read(length).decode()))
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@contextmanager
def collector(status: int = 204) -> Iterator[tuple[str, list[tuple[str | None, str]]]]:
    taken: list[tuple[str | None, str]] = []
    handler = type("Handler", (Collector,), {"status": status, "taken": taken})
    with http.server.HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/log", taken
        server.shutdown()
        thread.join()


def test_an_address_gets_each_with_the_token(tmp_path: Path) -> None:
    with collector() as (url, taken):
        home = Home(tmp_path, CheckpointPlace("url", url, token_env="COLLECTOR"))
        home.fill(3, COLLECTOR="s3cret")
    ((sent, text),) = taken
    assert (sent, parse_checkpoints(text)[0].checkpoint.size) == ("Bearer s3cret", 3)
    assert read_checkpoint_state(home.root).problem == ""


def failing(tmp_path: Path) -> Iterator[tuple[CheckpointPlace, str]]:
    yield CheckpointPlace("file", str(tmp_path / "nowhere" / "file")), "No such file"
    yield CheckpointPlace("git-ref", REF, tmp_path), "is not in a git repository"
    yield CheckpointPlace("url", "http://127.0.0.1:9/"), "http://127.0.0.1:9/"
    yield CheckpointPlace("url", "http://127.0.0.1:9/", token_env="UNSET"), "UNSET is not set"


def test_a_failure_is_loud_and_loses_no_receipt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number, (place, said) in enumerate(failing(tmp_path)):
        folder = tmp_path / str(number)
        folder.mkdir()
        home = Home(folder, place)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            home.fill(7)
        assert [record.__dict__["event"] for record in caplog.records] == ["checkpoint_failed"]
        state = read_checkpoint_state(home.root)
        assert (state.size, said in state.problem) == (0, True), state
        assert verify(home.book(), gone).receipts == 7


def test_an_address_that_refuses_is_a_failure_without_the_token(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with collector(status=403) as (url, _), caplog.at_level(logging.WARNING):
        home = Home(tmp_path, CheckpointPlace("url", url, token_env="COLLECTOR"))
        home.fill(3, COLLECTOR="s3cret")
    assert "failed with HTTP 403" in read_checkpoint_state(home.root).problem
    assert "s3cret" not in caplog.text + read_checkpoint_state(home.root).problem


def test_after_a_failure_the_next_process_makes_up_for_it(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.file.mkdir()
    home.fill(4)
    assert "Is a directory" in read_checkpoint_state(home.root).problem
    home.file.rmdir()
    home.fill(1)
    assert home.sizes() == [5]
    assert read_checkpoint_state(home.root) == CheckpointState(
        home.kept()[0].checkpoint.origin, 5, STAMP, ""
    )


def test_what_a_power_cut_left_does_not_swallow_the_next(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.fill(3)
    whole = home.file.read_bytes()
    home.file.write_bytes(whole + whole[:-1].rstrip(b"\n"))
    home.fill(3)
    assert home.sizes() == [3, 3, 6]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    home = Home(tmp_path)
    target = tmp_path / "target"
    target.write_text("")
    home.file.symlink_to(target)
    home.fill(3)
    assert target.read_text() == ""
    assert read_checkpoint_state(home.root).problem


def test_a_state_that_cannot_be_read_is_a_problem_and_is_replaced(tmp_path: Path) -> None:
    home = Home(tmp_path)
    (home.root / writing.CHECKPOINT_STATE_FILE).write_text('{"size": "many"}')
    assert "cannot be read" in read_checkpoint_state(home.root).problem
    home.fill(3)
    assert read_checkpoint_state(home.root).size == 3


def test_a_kill_at_any_instant_loses_no_receipt_and_no_checkpoint(tmp_path: Path) -> None:
    """Kill the process at each thing that it asks of the file system, until one gets through."""
    status = number = 0
    for number in range(1, 300, 3):
        folder = tmp_path / str(number)
        folder.mkdir()
        home = Home(folder)
        home.fill(2)
        status = reap(fork(lambda: _fill_until(home, number)))  # noqa: B023 - runs at once
        home.fill(3)
        sizes = home.sizes()
        assert sizes == sorted(sizes), number
        found = verify(home.book(), gone)
        assert (found.problems, found.receipts >= 5) == ((), True)
        assert found.receipts - sizes[-1] < home.every, number
        if status == 0:
            break
    assert status == 0
    assert number > 10


def _fill_until(home: Home, number: int) -> None:
    left = [number]

    def count(event: str, _: tuple[object, ...]) -> None:
        if event in {"open", "os.link", "os.remove", "os.rename", "fcntl.flock"}:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    book = home.book()
    sys.addaudithook(count)
    fill(book, 1)


def test_a_run_is_stated_too_and_a_failure_is_said(tmp_path: Path) -> None:
    home = Home(tmp_path)
    sealed = Checkpoint("coilclaw/runs/run_1", 70, "1e" * 32)
    home.writer().after_seal(sealed)
    assert [one.checkpoint for one in home.kept()] == [sealed]
    home.file.unlink()
    home.file.mkdir()
    home.writer().after_seal(sealed)
    assert "Is a directory" in read_checkpoint_state(home.root).problem
