"""A writer that is killed at any instant leaves a tree that the next command makes whole."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from coilclaw.changes.operations import PathChange, Plan
from coilclaw.kernel.journal_verification import verify_journal
from coilclaw.kernel.tree_files import FileState, RegularFile, Symlink
from coilclaw.kernel.tree_path import TreePath
from coilclaw.workspace.tree import recovery
from coilclaw.workspace.tree.changelog import HASH_FIELD, Changelog
from coilclaw.workspace.tree.root import Root
from coilclaw.workspace.tree.state import TreeState
from coilclaw.workspace.tree.writer import Purpose, Writer
from tests.support.scale import scaled
from tests.support.trees import make, picture

BEFORE = {"a.txt": b"a\n" * 50, "d/b.txt": b"b\n", "keep.txt": b"k", "t/x": b"file below t"}
Picture = dict[str, tuple[str, bytes, int]]


def change(name: str, before: FileState, after: FileState) -> PathChange:
    return PathChange(TreePath(tuple(name.split("/"))), before, after)


PLAN = Plan(
    (
        change("a.txt", RegularFile(BEFORE["a.txt"]), RegularFile(b"A\n" * 3000)),
        change("d/b.txt", RegularFile(b"b\n"), None),
        change("link", None, Symlink(b"keep.txt")),
        change("n/e/w.txt", None, RegularFile(b"new\n")),
        change("n/tool", None, RegularFile(b"#!/bin/sh\n", True)),
        change("swap", Symlink(b"keep.txt"), None),
        change("swap/in", None, RegularFile(b"now a directory")),
        change("t", None, RegularFile(b"now a file")),
        change("t/x", RegularFile(b"file below t"), None),
    )
)


def start(root: Path) -> Path:
    make(root, dict(BEFORE))
    os.symlink("keep.txt", root / "swap")
    return root


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return start(tmp_path / "tree")


@pytest.fixture
def state(tmp_path: Path, tree: Path) -> TreeState:
    return TreeState.of(tmp_path / "home", tree)


@pytest.fixture
def both(tmp_path: Path) -> tuple[Picture, Picture]:
    root = start(tmp_path / "model")
    before = picture(root)
    with Root(root) as opened:
        Writer(opened, TreeState.of(tmp_path / "home-of-model", root)).apply(PLAN, Purpose("x"))
    return before, picture(root)


@contextmanager
def child(work: Callable[[], None]) -> Iterator[int]:
    """Fork this warm process; whatever the child does, it never comes back here."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    yield pid


def repaired(tree: Path, state: TreeState) -> Picture:
    with Root(tree) as root:
        recovery.repair_tree(root, state)
    assert not state.pending.exists()
    return picture(tree)


def check(tree: Path, state: TreeState, both: tuple[Picture, Picture]) -> bool:
    """Return whether the change stands; fail when the tree or its record is half done."""
    before, after = both
    found = repaired(tree, state)
    assert found in (before, after)
    entries = Changelog(state).entries()
    stands = bool(entries) and not entries[-1].undoes
    assert stands == (found == after)
    if entries:
        report = verify_journal(
            state.journal, hash_field=HASH_FIELD, id_field="id", key_path=state.key
        )
        assert report.ok, report
        assert {folder.name for folder in state.changes.iterdir()} == {e.id for e in entries}
    return stands


CALLS = (
    "open",
    "rename",
    "replace",
    "unlink",
    "mkdir",
    "rmdir",
    "symlink",
    "link",
    "fsync",
    "write",
)


def dies_at(number: int) -> Callable[[], None]:
    """Make the process die just before its n-th call that touches a file."""
    counted = [0]

    def wrap(name: str) -> None:
        original = getattr(os, name)

        def counting(*args: Any, **kwargs: Any) -> Any:
            counted[0] += 1
            if counted[0] == number:
                os._exit(9)
            return original(*args, **kwargs)

        setattr(os, name, counting)

    def arm() -> None:
        for name in CALLS:
            wrap(name)

    return arm


def test_death_at_every_single_call_leaves_before_or_after(
    tree: Path, state: TreeState, both: tuple[Picture, Picture]
) -> None:
    state.create()
    with Root(tree) as root:
        Changelog(state).ready()
    seen: set[bool] = set()
    number = 0
    while True:
        number += 1

        def work(number: int = number) -> None:
            with Root(tree) as root:
                writer = Writer(root, state)
                dies_at(number)()
                writer.apply(PLAN, Purpose("apply"))
                os._exit(7)

        with child(work) as pid:
            _, status = os.waitpid(pid, 0)
        finished = os.waitstatus_to_exitcode(status) == 7
        assert os.waitstatus_to_exitcode(status) in (7, 9)
        stands = check(tree, state, both)
        seen.add(stands)
        if finished:
            assert stands
            break
        if stands:
            with Root(tree) as root:
                Writer(root, state).apply(
                    PLAN.invert(), Purpose("undo", undoes=(Changelog(state).entries()[-1].id,))
                )
    assert seen == {False, True}
    assert number > 60


def test_death_during_the_repair_itself_is_repaired(
    tree: Path, state: TreeState, both: tuple[Picture, Picture]
) -> None:
    for first in range(40, 110, 6):
        for second in range(1, 60, 5):

            def work(first: int = first) -> None:
                with Root(tree) as root:
                    writer = Writer(root, state)
                    dies_at(first)()
                    writer.apply(PLAN, Purpose("apply"))

            def repair(second: int = second) -> None:
                with Root(tree) as root:
                    dies_at(second)()
                    recovery.repair_tree(root, state)

            for task in (work, repair):
                with child(task) as pid:
                    os.waitpid(pid, 0)
            if check(tree, state, both):
                with Root(tree) as root:
                    Writer(root, state).apply(
                        PLAN.invert(),
                        Purpose("undo", undoes=(Changelog(state).entries()[-1].id,)),
                    )


def test_killed_at_random_instants_nothing_is_lost_or_half_done(
    tree: Path, state: TreeState, both: tuple[Picture, Picture]
) -> None:
    generator = random.Random(20261115)
    outcomes: list[bool] = []
    for _ in range(scaled(full=200, default=60)):
        reader, writer_end = os.pipe()

        def work(reader: int = reader, writer_end: int = writer_end) -> None:
            os.close(reader)
            with Root(tree) as root:
                writer = Writer(root, state)
                while True:
                    entries = Changelog(state).entries()
                    stands = bool(entries) and not entries[-1].undoes
                    if stands:
                        done = writer.apply(
                            PLAN.invert(), Purpose("undo", undoes=(entries[-1].id,))
                        )
                    else:
                        done = writer.apply(PLAN, Purpose("apply"))
                    os.write(writer_end, done.id.encode() + b"\n")

        with child(work) as pid:
            os.close(writer_end)
            time.sleep(generator.uniform(0.0, 0.06))
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        with os.fdopen(reader, "rb") as pipe:
            reported = pipe.read().decode().split()
        outcomes.append(check(tree, state, both))
        recorded = {entry.id for entry in Changelog(state).entries()}
        assert set(reported) <= recorded
    assert set(outcomes) == {False, True}


def test_a_file_changed_after_the_crash_is_left_as_it_is(
    tree: Path, state: TreeState, both: tuple[Picture, Picture], caplog: pytest.LogCaptureFixture
) -> None:
    state.create()

    def work() -> None:
        with Root(tree) as root:
            writer = Writer(root, state)
            original = os.rename
            renames = [0]

            def rename(*args: Any, **kwargs: Any) -> None:
                renames[0] += 1
                if renames[0] == 2:
                    os._exit(9)
                original(*args, **kwargs)

            os.rename = rename
            writer.apply(PLAN, Purpose("apply"))

    with child(work) as pid:
        os.waitpid(pid, 0)
    assert state.pending.exists()
    make(tree, {"n/tool": b"the user's own"})
    found = repaired(tree, state)
    expected = dict(both[1])
    expected["n/tool"] = ("file", b"the user's own", 0o644)
    assert found == expected
    assert "n/tool was changed by another process since" in caplog.text


def test_two_processes_apply_one_after_the_other(tree: Path, state: TreeState) -> None:
    def work(name: str) -> Callable[[], None]:
        def apply() -> None:
            with Root(tree) as root:
                for index in range(10):
                    plan = Plan((change(f"{name}/{index}", None, RegularFile(b"x")),))
                    Writer(root, state).apply(plan, Purpose(name))
            os._exit(7)

        return apply

    with child(work("one")) as first, child(work("two")) as second:
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in (first, second)]
    assert codes == [7, 7]
    assert len(Changelog(state).entries()) == 20
    assert verify_journal(
        state.journal, hash_field=HASH_FIELD, id_field="id", key_path=state.key
    ).ok
