"""``runs gc`` and the set-ups that are kept for later runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from coilclaw.runs.contracts.task_contract import SetupCommand
from coilclaw.runs.engine.contract_stage import RunRequest
from coilclaw.runs.engine.garbage_collection import CollectionOptions, Removed, collect_garbage
from coilclaw.runs.engine.run_start import RunOptions, own_run
from coilclaw.runs.engine.worktree_setup import load_setup, lock_setup
from tests.support.runs import ADDS, World, opened
from tests.support.snapshot_trees import Program, build, git

_MAKES = Program(b"#!/bin/sh\nset -e\nmkdir -p deps\nprintf 1234567 > deps/marker\n")
_DAY_S = 86_400


@pytest.fixture
def world() -> Iterator[World]:
    with opened() as made:
        build(made.repo, {"scripts/setup.sh": _MAKES})
        git(made.repo, "add", "-A")
        git(made.repo, "commit", "-q", "-m", "set up")
        yield made


def contract_of(world: World, name: str = "make") -> bytes:
    setup = (SetupCommand(name=name, cmd="./scripts/setup.sh"),)
    return world.contract(max_retries=0, change=lambda one: replace(one, setup=setup))


def setups(world: World) -> set[Path]:
    return {each.parent for each in (world.runtime / "setups").glob("*/setup.json")}


def made(world: World, name: str = "make") -> tuple[str, Path]:
    """Have a run make one more set-up."""
    before = setups(world)
    run_id = world.ended(world.run(contract_of(world, name))).run_id
    (place,) = setups(world) - before
    return run_id, place


def collected(world: World, **wishes: object) -> list[Removed]:
    gone = collect_garbage(world.orchestrator().equipment, replace(CollectionOptions(), **wishes))  # type: ignore[arg-type] # what the caller names are its fields
    return [one for one in gone if one.what == "setup"]


def test_a_set_up_is_collected_once_its_run_has_ended(world: World) -> None:
    _, place = made(world)
    (listed,) = collected(world, dry_run=True)
    assert place.is_dir()
    assert listed.name == str(place)
    assert listed.size_bytes == sum(
        each.stat().st_size for each in place.rglob("*") if each.is_file()
    )
    assert listed.size_bytes > 7
    assert collected(world) == [listed]
    assert not place.exists()
    assert collected(world) == []
    # It is made again for who needs it.
    assert made(world)[1] == place


def test_a_set_up_of_a_run_that_goes_on_is_left_alone(world: World) -> None:
    orchestrator = world.orchestrator()
    found: list[list[Removed]] = []

    def gather(event: Mapping[str, object]) -> None:
        if event["event_type"] in {"TASK_STARTED", "TEST_RESULT"}:
            found.append(collected(world))

    options = RunOptions(world.script([{"write": ADDS}]), "rules", merge=False, baseline=True)
    outcome = orchestrator.start(RunRequest(contract_of(world), ""), options, gather)
    assert outcome.status == "passed"
    assert found == [[], []]
    with own_run(world.orchestrator().equipment, outcome.run_id):
        assert collected(world) == []
    assert len(collected(world)) == 1


def test_a_set_up_of_a_run_that_can_be_resumed_is_left_alone(world: World) -> None:
    run_id, place = made(world)
    manifest = world.bundle(run_id) / "manifest.json"
    manifest.parent.chmod(0o700)
    aside = manifest.rename(world.root / "manifest.json")
    manifest.write_text("{}")
    assert collected(world) == []
    aside.replace(manifest)
    assert [one.name for one in collected(world)] == [str(place)]


def test_a_set_up_that_is_being_made_is_left_alone(world: World) -> None:
    _, place = made(world)
    (place / "setup.json").unlink()
    with lock_setup(place.parent, place.name, timeout_s=0):
        assert collected(world) == []
    # What a killed process left goes, however new it is.
    assert [one.name for one in collected(world, older_than_days=1.0, keep=5)] == [str(place)]
    assert not place.exists()


def test_age_and_number_decide_over_set_ups_as_over_runs(world: World) -> None:
    first, second = made(world, "first")[1], made(world, "second")[1]
    assert collected(world, older_than_days=1.0) == []
    now = (first / "setup.json").stat().st_mtime
    os.utime(first / "setup.json", (now - 2 * _DAY_S, now - 2 * _DAY_S))
    os.utime(second / "setup.json", (now - 3 * _DAY_S, now - 3 * _DAY_S))
    listed = collected(world, older_than_days=1.0, keep=1, dry_run=True)
    assert [one.name for one in listed] == [str(second)]
    # A run that uses it makes it the newest.
    world.ended(world.run(contract_of(world, "second")))
    gone = collected(world, older_than_days=1.0)
    assert [one.name for one in gone] == [str(first)]
    assert [one.name for one in collected(world, keep=0)] == [str(second)]


_KILLED = """import os, signal, sys
from pathlib import Path
from coilclaw.app.drivers import open_orchestrator
from coilclaw.runs.engine.garbage_collection import CollectionOptions, collect_garbage
from coilclaw.workspace.tree import removal

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

equipment = open_orchestrator(Path(sys.argv[1]), Path(sys.argv[2]), {}).equipment
if sys.argv[3] == "before":
    removal.os.rename = die
else:
    removal._empty = die
collect_garbage(equipment, CollectionOptions())
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_collection_that_is_killed_leaves_a_whole_set_up_or_none(world: World, when: str) -> None:
    _, place = made(world)
    command = [sys.executable, "-c", _KILLED, str(world.repo), str(world.home), when]
    done = subprocess.run(command, check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    whole = load_setup(place, place.name)
    assert place.exists() is (when == "before") is (whole is not None)
    (aside,) = place.parent.glob(".coilclaw-gone-*")
    assert (aside / "0" / "setup.json").exists() is (when == "after")
    assert world.run(contract_of(world)).status == "passed"
    assert load_setup(place, place.name) is not None
    assert {one.name for one in collected(world)} == {str(place), str(aside)}
    assert not [name for name in os.listdir(place.parent) if not name.endswith(".lock")]


def test_the_command_says_how_much_goes(world: World) -> None:
    _, place = made(world)

    def gc(*options: str) -> str:
        command = [sys.executable, "-m", "coilclaw", "runs", "gc", "--repo", str(world.repo)]
        environ = {**os.environ, "COILCLAW_HOME": str(world.home)}
        done = subprocess.run(
            [*command, *options], check=True, capture_output=True, text=True, env=environ
        )
        return done.stdout + done.stderr

    assert f"setup     {place} (0.0 MiB)" in gc("--dry-run")
    assert "would be removed, 0.0 MiB of set-ups" in gc("--dry-run")
    (row,) = json.loads(gc("--json"))["removed"]
    assert (row["what"], row["run_id"], row["name"]) == ("setup", "", str(place))
    assert row["size_bytes"] > 7
    assert gc().strip() == "nothing to remove"
