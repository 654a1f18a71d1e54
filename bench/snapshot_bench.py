"""How long a picture of a tree takes, against what git needs for the same tree."""

from __future__ import annotations

import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.measurement import Measurement
from coilclaw.workspace.snapshot.stat_cache import MARGIN_NS
from coilclaw.workspace.snapshot.store import SnapshotStore

DIRECTORIES = 200
FILES_EACH = 100
FILE_BYTES = 2000
FIRST_ROUNDS = 5
UNCHANGED_ROUNDS = 15
FIRST_TARGET = 2.0
UNCHANGED_TARGET = 2.5


def _build(root: Path) -> None:
    chance = random.Random(1)
    words = [f"word{number}" for number in range(3000)]
    for number in range(DIRECTORIES):
        directory = root / f"area{number % 14}" / f"part{number}"
        directory.mkdir(parents=True)
        for index in range(FILES_EACH):
            text = " ".join(chance.choices(words, k=FILE_BYTES // 5)).encode()[:FILE_BYTES]
            (directory / f"file{index}.txt").write_bytes(text)


def _git(git_dir: Path, root: Path, *arguments: str) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_DIR": str(git_dir),
        "GIT_WORK_TREE": str(root),
    }
    subprocess.run(
        ["git", *arguments], cwd=root, env=environment, check=True, stdout=subprocess.DEVNULL
    )


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _first(root: Path, place: Path) -> tuple[float, float]:
    """Take a first snapshot, and let git add everything to a fresh repository."""
    store, git_dir = place / "fresh-store", place / "fresh.git"
    _git(git_dir, root, "init", "-q")
    ours = _seconds(lambda: SnapshotStore(store).take(root))
    theirs = _seconds(lambda: _git(git_dir, root, "add", "-A"))
    shutil.rmtree(store)
    shutil.rmtree(git_dir)
    return ours, theirs


def _unchanged(root: Path, place: Path) -> tuple[float, float]:
    ours = _seconds(lambda: SnapshotStore(place / "store").take(root))
    theirs = _seconds(lambda: _git(root / ".git", root, "status"))
    return ours, theirs


def _compared(name: str, pairs: list[tuple[float, float]], target: float) -> Measurement:
    ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = ours / theirs
    detail = f"{ours * 1e3:.0f} ms against {theirs * 1e3:.0f} ms, {DIRECTORIES * FILES_EACH} files"
    return Measurement(name, ratio, f"<= {target:g}", ratio <= target, detail)


def run() -> list[Measurement]:
    """Compare first snapshots with ``git add -A``, and unchanged ones with ``git status``."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        root = place / "tree"
        _build(root)
        # Interleaved, so that whatever else the machine does falls on both alike.
        first = [_first(root, place) for _ in range(FIRST_ROUNDS)]
        _git(root / ".git", root, "init", "-q")
        _git(root / ".git", root, "add", "-A")
        who = ("-c", "user.name=Bench", "-c", "user.email=bench@example.invalid")
        _git(root / ".git", root, *who, "commit", "-q", "-m", "everything")
        # Files that were touched a moment ago are read again, by us and by git.
        time.sleep(MARGIN_NS / 1e9 + 0.1)
        for _ in range(2):
            _unchanged(root, place)
        unchanged = [_unchanged(root, place) for _ in range(UNCHANGED_ROUNDS)]
    return [
        _compared("first snapshot / git add -A", first, FIRST_TARGET),
        _compared("unchanged snapshot / git status", unchanged, UNCHANGED_TARGET),
    ]
