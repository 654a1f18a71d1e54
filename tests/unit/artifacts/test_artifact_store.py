"""What holds for every store, shown with a directory and with a bucket of a real server."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from coilclaw.kernel.errors import EnvironmentFault, PathRefused
from coilclaw.traces.artifacts.local_store import MAX_MEMORY_BYTES
from coilclaw.traces.artifacts.store import ArtifactEntry, ArtifactStore, ArtifactVersion
from tests.support.scale import scaled

KEY = "trajectories/t1/agent_trace.json"


def test_a_second_writer_is_noticed_and_overwrites_nothing(store: ArtifactStore) -> None:
    first = store.put(KEY, b"one", previous=None)
    with pytest.raises(EnvironmentFault) as late:
        store.put(KEY, b"two", previous=None)
    assert late.value.rule == "artifact.conflict"
    second = store.put(KEY, b"three", previous=first)
    with pytest.raises(EnvironmentFault) as stale:
        store.put(KEY, b"four", previous=first)
    assert stale.value.rule == "artifact.conflict"
    assert store.get(KEY) == b"three"
    assert store.head(KEY) == second
    assert second.size == 5


def test_an_update_of_what_is_gone_is_a_conflict(store: ArtifactStore) -> None:
    elsewhere = store.put("a/b", b"x", previous=None)
    with pytest.raises(EnvironmentFault) as gone:
        store.put("a/c", b"y", previous=elsewhere)
    assert gone.value.rule == "artifact.conflict"
    assert not store.exists("a/c")


def test_the_same_bytes_again_are_no_conflict(store: ArtifactStore) -> None:
    first = store.put(KEY, b"same", previous=None)
    assert store.put(KEY, b"same", previous=None) == first
    assert store.put(KEY, b"same", previous=ArtifactVersion('"stale"', 1)) == first


def test_of_many_writers_one_wins(store: ArtifactStore) -> None:
    seen = store.put(KEY, b"start", previous=None)
    outcomes: dict[str, str] = {}
    barrier = threading.Barrier(4)

    def write(name: str) -> None:
        barrier.wait()
        try:
            store.put(KEY, name.encode(), previous=seen)
            outcomes[name] = "won"
        except EnvironmentFault as problem:
            outcomes[name] = problem.rule

    threads = [threading.Thread(target=write, args=(f"writer {n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes.values()) == ["artifact.conflict"] * 3 + ["won"]
    (winner,) = (name for name, outcome in outcomes.items() if outcome == "won")
    assert store.get(KEY) == winner.encode()


def test_what_is_not_there_is_said(store: ArtifactStore, tmp_path: Path) -> None:
    assert store.head(KEY) is None
    assert not store.exists(KEY)
    assert store.list() == ()
    for read in (lambda: store.get(KEY), lambda: store.download(KEY, tmp_path / "out")):
        with pytest.raises(EnvironmentFault) as missing:
            read()
        assert missing.value.rule == "artifact.missing"
    assert sorted(tmp_path.glob("*out*")) == []


def test_a_hostile_key_reaches_nothing(store: ArtifactStore, tmp_path: Path) -> None:
    for call in (
        lambda: store.put("../x", b"", previous=None),
        lambda: store.get("../x"),
        lambda: store.head("/etc/passwd"),
        lambda: store.exists("a/../../x"),
        lambda: store.download("..", tmp_path / "x"),
        lambda: store.list("../"),
    ):
        with pytest.raises(PathRefused):
            call()
    assert not (tmp_path / "x").exists()


def test_more_than_the_bound_is_not_read(store: ArtifactStore) -> None:
    store.put(KEY, b"12345", previous=None)
    assert store.get(KEY, limit=5) == b"12345"
    with pytest.raises(EnvironmentFault) as large:
        store.get(KEY, limit=4)
    assert large.value.rule == "artifact.large"


def test_bytes_and_files_of_every_size_come_back(store: ArtifactStore, tmp_path: Path) -> None:
    large = os.urandom(2**16) * 160  # more than is read into memory
    assert len(large) > MAX_MEMORY_BYTES
    for number, data in enumerate((b"", b"x", large)):
        file = tmp_path / "in"
        file.write_bytes(data)
        of_file = store.put(f"f/{number}", file, previous=None)
        of_bytes = store.put(f"b/{number}", data, previous=None)
        out = tmp_path / "out"
        assert store.download(f"f/{number}", out) == of_file
        assert out.read_bytes() == store.get(f"b/{number}") == data
        assert of_file == of_bytes
        assert store.head(f"b/{number}") == of_bytes
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_listing_is_by_whole_names_and_in_order(store: ArtifactStore) -> None:
    for key in ("t/b/2", "t/b/10", "t/a", "tt/x", "s"):
        store.put(key, key.encode(), previous=None)
    assert store.list("t") == (
        ArtifactEntry("t/a", 3),
        ArtifactEntry("t/b/10", 6),
        ArtifactEntry("t/b/2", 5),
    )
    assert [entry.key for entry in store.list()] == ["s", "t/a", "t/b/10", "t/b/2", "tt/x"]
    assert store.list("nothing") == ()


def test_an_address_says_where_an_artifact_is(store: ArtifactStore) -> None:
    uri = store.uri(KEY)
    assert uri.endswith("/" + KEY)
    assert uri.startswith(("s3://", "/"))


def test_many_versions_in_a_row_each_build_on_the_last(store: ArtifactStore) -> None:
    version = None
    for number in range(scaled(full=200, default=20)):
        version = store.put(KEY, f"state {number}".encode(), previous=version)
        assert store.head(KEY) == version
