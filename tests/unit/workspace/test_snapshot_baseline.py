"""The persisted formats of snapshots do not change silently."""

from __future__ import annotations

import json
import os
from pathlib import Path

from coilclaw.workspace.snapshot import stat_cache
from coilclaw.workspace.snapshot.stat_cache import Directory, StatCache
from coilclaw.workspace.snapshot.store import SnapshotStore
from tests.support.snapshot_trees import Empty, Link, Program, build

BASELINE = Path(__file__).parents[2] / "baselines" / "v1" / "snapshot"


def fixed_tree(root: Path) -> Path:
    """A tree of which every byte, mode and type is given."""
    build(
        root,
        {
            "README": b"hello\n",
            "bin/tool": Program(b"#!/bin/sh\nexit 0\n"),
            "link": Link("bin/tool"),
            "deep/empty": Empty(),
            os.fsdecode(b"odd \xff\nname"): b"\0\1\2",
            "sub/file": b"in a nested repository\n",
            "sub/.git/HEAD": b"ref: refs/heads/main\n",
            "sub/.git/objects": Empty(),
            ".git/HEAD": b"ref: refs/heads/main\n",
            ".git/config": b"[core]\n\tbare = false\n",
            ".git/hooks/pre-commit": Program(b"#!/bin/sh\n"),
            ".git/info/exclude": b"*.o\n",
        },
    )
    os.mkfifo(root / "fifo")
    for directory, names, _ in os.walk(root):
        for name in names:
            os.chmod(os.path.join(directory, name), 0o755)
    return root


def fixed_cache() -> StatCache:
    key = (6, 1_700_000_000_123_456_789, 1_700_000_001_987_654_321, 12_345, 66_305, 0o100644)
    untrusted = (-1, 0, 0, 0, 0, 0o120777)
    odd = os.fsdecode(b"odd \xff\nname")
    top = Directory(
        {"README": (key, bytes([1] * 20)), odd: (untrusted, bytes([2] * 20))},
        {"sub": bytes([3] * 20)},
        bytes([4] * 20),
    )
    below = Directory({"file": (key, bytes([5] * 20))}, {}, bytes([3] * 20))
    return StatCache(
        "generation",
        "0123456789abcdef0123456789abcdef01234567",
        {
            "": top.encode(""),
            "sub/": below.encode("sub/"),
            "e/": Directory({}, {}, None).encode("e/"),
        },
        {".git/HEAD": (key, bytes([6] * 32))},
    )


def test_the_id_of_a_fixed_tree(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path / "store")
    taken = store.take(fixed_tree(tmp_path / "tree"))
    found = {
        "id": taken.id,
        "tree": taken.tree,
        "commit": store._objects.commit(taken.id, 10_000).decode("ascii"),
        "files": [[path, kind, name] for path, kind, name in store.files(taken.id)],
    }
    assert found == json.loads((BASELINE / "snapshot.json").read_text())


def test_the_stat_cache_of_version_1_is_read_and_written_alike() -> None:
    stored = (BASELINE / "stat-cache.bin").read_bytes()
    assert stat_cache.decode(stored) == fixed_cache()
    assert stat_cache.encode(fixed_cache()) == stored
