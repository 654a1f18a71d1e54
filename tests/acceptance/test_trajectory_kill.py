"""Harness, agent or both are killed at random instants, and no part that was completed is lost."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from coilclaw.kernel.errors import UsageError
from coilclaw.traces.trajectory.opened_trajectory import repair_document
from coilclaw.traces.trajectory.trace import SessionEnd
from coilclaw.traces.trajectory.verification import verify_trajectory
from tests.support.scale import scaled
from tests.support.trajectories import FileTests, World, opened, turns

KILLS = scaled(full=100, default=25)
TURNS = 6
LINES: list[list[Mapping[str, Any]]] = [
    [
        {"reasoning": f"turn {number}"},
        {"write": {"one.txt": f"{number}", f"d/{number}.txt": "x" * 5000}},
        {"shell": f"echo {number} >> log; rm -f d/{number - 1}.txt"},
        {"run_tests": "basics"},
        {"commit": f"turn {number}"},
    ]
    for number in range(TURNS)
]
SCRIPT = turns(*LINES)


def start(world: World, told: Path) -> Callable[[], SessionEnd]:
    """Begin or go on, and tell of every part when it is recorded."""
    descriptor = os.open(told, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def tell(part: Any) -> None:
        os.write(descriptor, f"{part.part} {part.git_commit} {part.summary}\n".encode())

    world.changes["on_part"] = tell
    if world.places.session.exists():
        return lambda: world.resume(SCRIPT)
    return lambda: world.run(SCRIPT, max_turns=TURNS)


def forked(work: Callable[[], object]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
        os._exit(0)
    except BaseException as problem:  # noqa: BLE001 - a fork may not go on as a test
        os.write(2, f"in the forked process: {problem!r}\n".encode())
        os._exit(9)


def below(pid: int) -> list[int]:
    """All processes that descend from one."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                text = Path(f"/proc/{entry}/stat").read_text(errors="replace")
            except OSError:
                continue
            parents[int(entry)] = int(text.rpartition(")")[2].split()[1])
    found: list[int] = []
    level = [pid]
    while level:
        level = [child for child, parent in parents.items() if parent in level]
        found += level
    return found


def killed(work: Callable[[], object], after_s: float, victims: str) -> bool:
    """Do something until a moment, then kill; whether it was over before."""
    pid = forked(work)
    until = time.monotonic() + after_s
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0
            return True
        time.sleep(0.002)
    # The harness first: one that sees its children die says so before it is killed.
    hit = ([] if victims == "agent" else [pid]) + ([] if victims == "harness" else below(pid))
    for each in hit:
        try:
            os.kill(each, signal.SIGKILL)
        except ProcessLookupError:
            continue
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    # Whatever was killed below it, git of ours included, the harness itself ends in order or says.
    assert code in ({0, 9} if victims == "agent" else {0, -signal.SIGKILL})
    return False


def holds(world: World, told: Path) -> None:
    """What was told is recorded, and what is recorded holds."""
    try:
        repair_document(world.places)
    except UsageError:
        assert not told.read_text()  # it was killed before it began
        return
    found = verify_trajectory(world.places)
    assert found.problems == ()
    parts = world.trace().parts
    lines = [line.split(" ", 2) for line in told.read_text().splitlines()]
    for number, commit, summary in lines:
        part = parts[int(number) - 1]
        assert [str(part.part), part.git_commit, part.summary] == [number, commit, summary]
    assert len(parts) >= len(lines)
    assert [part.part for part in parts] == list(range(1, len(parts) + 1))


@pytest.fixture(scope="module")
def took() -> float:
    """How long it takes when it is left alone; this also warms the process that is forked."""
    with opened(FileTests()) as world:
        began = time.monotonic()
        end = world.run(SCRIPT, max_turns=TURNS)
        assert (end.reason, end.total_parts) == ("turn_limit", 5 * TURNS)
        assert verify_trajectory(world.places).problems == ()
        return time.monotonic() - began


def test_no_completed_part_is_lost(took: float) -> None:
    chance = random.Random(os.environ.get("COILCLAW_KILL_SEED", "kills"))
    left = KILLS
    while left > 0:
        with opened(FileTests()) as world:
            told = world.home.parent / "told"
            told.touch()
            over = False
            for _ in range(min(left, 7)):
                left -= 1
                moment = chance.uniform(0, took / 3)
                victims = chance.choice(["harness", "agent", "both"])
                over = killed(start(world, told), moment, victims)
                if world.places.journal.exists():
                    holds(world, told)
                if over:
                    break
            if not over:
                end = start(world, told)()
                assert end.reason == "turn_limit"
                assert end.total_turns == TURNS
                holds(world, told)
