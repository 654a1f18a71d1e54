"""What goes to the store of artifacts, under which keys; no trouble there stops anything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from coilclaw.kernel.errors import EnvironmentFault
from coilclaw.traces.artifacts.local_store import LocalStore
from coilclaw.traces.artifacts.uploader import Uploader
from coilclaw.traces.trajectory import bundles
from coilclaw.traces.trajectory.recorder import Publisher
from coilclaw.traces.trajectory.trace import load_trace
from tests.support.trajectories import FileTests, World, opened, turns

KEYS = "trajectories/traj-1"


@pytest.fixture
def world() -> Iterator[World]:
    with opened(FileTests()) as made:
        yield made


def uploaded(world: World, work: str, *, adopt: bool = False) -> LocalStore:
    store = LocalStore(world.home / "artifacts")
    uploader = Uploader(store, adopt=adopt)
    world.changes["uploads"] = uploader
    script = turns(
        [{"write": {"one.txt": "ok"}}, {"run_tests": ""}], [{"write": {"two.txt": "ok"}}]
    )
    if work == "run":
        world.run(script, max_turns=1)
    else:
        world.resume(script, lambda plan: replace(plan, max_turns=2))
    assert uploader.close(60).troubles == ()
    return store


def test_everything_of_a_trajectory_is_in_the_store(world: World, tmp_path: Path) -> None:
    store = uploaded(world, "run")
    names = sorted(entry.key.removeprefix(f"{KEYS}/") for entry in store.list(KEYS))
    (result,) = [path.name for path in world.places.results.iterdir()]
    assert names == [
        "agent_trace.json",
        "bundles/0.bundle",
        "bundles/1.bundle",
        "parts.jsonl",
        "parts.jsonl.anchor",
        "repo.bundle",
        f"results/{result}",
        "session.json",
    ]
    for name in names:
        assert store.get(f"{KEYS}/{name}") == (world.places.directory / name).read_bytes()
    trace = load_trace(store.get(f"{KEYS}/agent_trace.json"))
    assert trace == world.trace()
    whole = bundles.assemble([world.places.bundle], tmp_path / "repo.git")
    assert trace.parts[-1].git_commit in bundles.commits(whole)


def test_a_resumed_trajectory_goes_on_in_the_store(world: World) -> None:
    uploaded(world, "run")
    store = uploaded(world, "resume", adopt=True)
    assert load_trace(store.get(f"{KEYS}/agent_trace.json")) == world.trace()
    assert store.exists(f"{KEYS}/bundles/3.bundle")
    assert store.get(f"{KEYS}/repo.bundle") == world.places.bundle.read_bytes()


class Full:
    """Takes documents, and no piece until it is told to."""

    def __init__(self) -> None:
        self.open = False
        self.pieces: list[str] = []

    def document(self, key: str, source: Path | bytes, /) -> None:
        if key.endswith("agent_trace.json") and isinstance(source, Path):
            json.loads(source.read_bytes())

    def piece(self, key: str, source: Path, /) -> None:
        assert source.exists()
        if not self.open:
            raise EnvironmentFault("too many wait", rule="artifact.backlog")
        self.pieces.append(key)


def test_a_store_that_takes_nothing_stops_nothing(world: World) -> None:
    full = Full()
    world.changes["uploads"] = full
    end = world.run(turns([{"write": {"a": "1"}}, {"text": "x"}]), max_turns=1)
    assert end.total_parts == 2
    assert full.pieces == []


def test_what_could_not_be_handed_over_is_handed_over_at_the_end(world: World) -> None:
    world.run(turns([{"text": "x"}]), max_turns=1)
    full = Full()
    publisher = Publisher(world.places, full)
    publisher.piece(world.places.bundles / "0.bundle")
    full.open = True
    publisher.end()
    assert full.pieces == [f"{KEYS}/bundles/0.bundle"]
