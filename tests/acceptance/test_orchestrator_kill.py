"""The orchestrator is killed at random instants, again and again, and comes to the same result."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from coilclaw.kernel.errors import UsageError
from coilclaw.runs.engine.garbage_collection import CollectionOptions, collect_garbage
from coilclaw.runs.engine.run_engine import RunOutcome
from coilclaw.runs.evidence.bundle import discard_bundle
from tests.support.children import PATIENCE_S
from tests.support.runs import (
    ADDS,
    CALC,
    SHOUTS,
    TEXT,
    Answering,
    World,
    opened,
    split,
    task,
)
from tests.support.scale import scaled

KILLS = scaled(full=100, default=25)
WRONG = {"pkg/calc.py": "def add(a, b):\n    return a * b\n"}


def single(world: World) -> Callable[[], RunOutcome]:
    runner = world.script([{"shell": "echo hello"}, {"write": ADDS}, {"commit": "mine"}])
    return lambda: world.run(runner=runner, merge=True)


def two(world: World) -> Callable[[], RunOutcome]:
    world.models["TECH_LEAD"] = Answering(
        split(task("calc", ["pkg/calc.py"], [CALC]), task("text", ["pkg/text.py"], [TEXT]))
    )
    paths = ["pkg/calc.py", "pkg/text.py"]
    contract = world.contract(paths, [CALC, TEXT], role="TECH_LEAD")
    runner = world.script_for(
        {"task-0001-calc": [[{"write": ADDS}]], "task-0001-text": [[{"write": SHOUTS}]]}
    )
    return lambda: world.run(contract, runner, merge=True)


def repaired(world: World) -> Callable[[], RunOutcome]:
    runner = world.script([{"write": WRONG}], [{"write": ADDS}])
    return lambda: world.run(runner=runner, merge=True)


def joined(world: World) -> Callable[[], RunOutcome]:
    """The branch has moved, so that the merged tree is tested as well."""
    runner = world.script([{"write": ADDS}])
    contract = world.contract(baseline_ref=world.git("rev-parse", "HEAD"))
    (world.repo / "README.md").write_text("# Sums, and more\n")
    world.git("commit", "-q", "-am", "meanwhile")
    return lambda: world.run(contract, runner, merge=True)


def exhausted(world: World) -> Callable[[], RunOutcome]:
    runner = world.script([{"write": {"other/outside.txt": "mine\n"}}], [{"write": WRONG}])
    return lambda: world.run(runner=runner, merge=True)


SCENARIOS = {each.__name__: each for each in (single, two, repaired, joined, exhausted)}


@dataclass
class Result:
    """What has to be the same, however often the run was killed."""

    status: str
    reason: str
    merge: str
    tree: str
    tasks: dict[str, str]
    results: dict[str, int] = field(default_factory=dict)


def result_of(world: World, outcome: RunOutcome) -> Result:
    world.ended(outcome)
    manifest = world.read(outcome.run_id, "manifest.json")
    counted: dict[str, int] = {}
    for event in world.recorded(outcome.run_id):
        if event["event_type"] == "TASK_RESULT_RECORDED":
            counted[event["task_id"]] = counted.get(event["task_id"], 0) + 1
    return Result(
        outcome.status,
        outcome.reason,
        outcome.merge,
        world.git("rev-parse", "HEAD^{tree}"),
        {each["task_id"]: each["status"] for each in manifest["tasks"]},
        counted,
    )


def forked(work: Callable[[], object]) -> int:
    """Do something in a process of its own; its id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
        os._exit(0)
    except BaseException as problem:  # noqa: BLE001 - a forked process goes no further than this
        os.write(2, f"in the forked process: {problem!r}\n".encode())
        os._exit(9)


def killed(work: Callable[[], object], after_s: float) -> bool:
    """Do something until a moment; whether it was killed before it was done."""
    pid = forked(work)
    until = time.monotonic() + after_s
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0
            return False
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) == -signal.SIGKILL


def runs_of(world: World) -> list[str]:
    place = world.runtime / "runs"
    return sorted(os.listdir(place)) if place.is_dir() else []


def processes_in(root: Path) -> list[str]:
    """What still runs somewhere below a directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(root) in line or os.readlink(entry / "cwd").startswith(str(root)):
                found.append(line)
        except OSError:
            continue
    return found


@pytest.fixture(scope="module")
def expected() -> dict[str, tuple[Result, float]]:
    """Every scenario, left alone; this also warms the process that is forked."""
    made: dict[str, tuple[Result, float]] = {}
    for name, scenario in SCENARIOS.items():
        with opened() as world:
            start = scenario(world)
            begun = time.monotonic()
            outcome = start()
            took = time.monotonic() - begun
            made[name] = (result_of(world, outcome), took)
    assert [made[name][0].status for name in SCENARIOS] == [*["passed"] * 4, "failed"]
    return made


def test_a_run_that_is_killed_comes_to_the_same_result(
    expected: dict[str, tuple[Result, float]],
) -> None:
    chance = random.Random(f"{os.environ.get('COILCLAW_KILL_SEED', 'kills')}")
    left, number = KILLS, 0
    while left > 0:
        name = sorted(SCENARIOS)[number % len(SCENARIOS)]
        number += 1
        left -= _killed_run(name, *expected[name], chance, min(left, 4))


def _killed_run(name: str, wanted: Result, took: float, chance: random.Random, most: int) -> int:
    kills: list[float] = []
    with opened() as world:
        start = SCENARIOS[name](world)
        while len(kills) < most and not runs_of(world):
            kills.append(chance.uniform(0, took))
            if not killed(start, kills[-1]):
                break
            _forget_what_never_began(world)
        while runs_of(world) and len(kills) < most and not _sealed(world):
            kills.append(chance.uniform(0, took))
            (run_id,) = runs_of(world)
            killed(partial(world.resume, run_id), kills[-1])
        outcome = _finished(world, start)
        told = f"{name}, killed after {kills}: {world.bundle(outcome.run_id)}"
        assert result_of(world, outcome) == wanted, told
        _wait_for_none(world.root)
    return len(kills)


def _forget_what_never_began(world: World) -> None:
    """Before the first event there is no run yet; ``runs gc`` removes what is left of it."""
    for run_id in runs_of(world):
        if not (world.bundle(run_id) / "events.jsonl").exists() or not world.recorded(run_id):
            with pytest.raises(UsageError, match="killed before"):
                world.resume(run_id)
            discard_bundle(world.bundle(run_id))
    if not runs_of(world):
        collect_garbage(world.orchestrator().equipment, CollectionOptions())


def _sealed(world: World) -> bool:
    (run_id,) = runs_of(world)
    place = world.bundle(run_id) / "manifest.json"
    return place.exists() and "integrity" in json.loads(place.read_bytes())


def _finished(world: World, start: Callable[[], RunOutcome]) -> RunOutcome:
    """Go on without any more kills; a run that was sealed already tells its own end."""
    if not runs_of(world):
        return start()
    (run_id,) = runs_of(world)
    if not _sealed(world):
        return world.resume(run_id)
    with pytest.raises(UsageError, match="sealed"):
        world.resume(run_id)
    return _told(world, run_id)


def _told(world: World, run_id: str) -> RunOutcome:
    from coilclaw.runs.contracts.manifest import RunManifest
    from coilclaw.runs.evidence.progress import fold_events

    manifest: Any = world.read(run_id, "manifest.json")
    progress = fold_events(world.recorded(run_id))
    return RunOutcome(
        run_id,
        "passed" if manifest["status"] == "SUCCESS" else "failed",
        progress.state,
        str(progress.finished["reason"]),
        progress.merge,
        RunManifest.of(manifest),
    )


def _wait_for_none(root: Path) -> None:
    """What an orchestrator started ends with it, at once or nearly so."""
    until = time.monotonic() + 2 * PATIENCE_S
    while processes_in(root) and time.monotonic() < until:
        time.sleep(0.05)
    assert processes_in(root) == []
