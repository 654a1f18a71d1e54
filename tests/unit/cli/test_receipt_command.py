"""``coilclaw receipt verify``: what it says, and how it ends."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.agents import AgentHome, calls, says
from tests.unit.cli.setting_up import Done, World


@pytest.fixture
def home(tmp_path: Path) -> AgentHome:
    return AgentHome.make(tmp_path, answers=[calls(("time", {})), says("done")])


def call_tool(home: AgentHome) -> None:
    with home.runtime() as runtime:
        runtime.turn("what time is it?")


def verify(world: World, home: AgentHome, *options: str) -> Done:
    return world.run("receipt", "verify", *options, COILCLAW_HOME=str(home.home))


def wipe(home: AgentHome) -> None:
    for path in home.home.glob("tool_receipts*"):
        path.unlink()


def test_a_home_that_never_ran_a_tool_says_so(world: World, home: AgentHome) -> None:
    done = verify(world, home)
    assert (done.code, done.out) == (0, "nothing to verify: no tool was called yet\n")
    told = json.loads(verify(world, home, "--json").out)
    assert (told["ok"], told["state"], told["receipts"]) == (True, "nothing", 0)


def test_receipts_that_hold_are_valid(world: World, home: AgentHome) -> None:
    call_tool(home)
    assert verify(world, home).out.startswith("valid: 1 receipts, 1 intents")
    assert json.loads(verify(world, home, "--json").out)["state"] == "valid"


def test_wiped_receipts_are_missing(world: World, home: AgentHome) -> None:
    call_tool(home)
    wipe(home)
    done = verify(world, home)
    assert done.code == 1
    assert "missing" in done.err
    assert "receipts.missing" in done.err
    told = json.loads(verify(world, home, "--json").out)
    assert (told["ok"], told["state"], told["receipts"]) == (False, "missing", 0)


def test_the_memory_tells_of_receipts_when_the_keys_are_gone_too(
    world: World, home: AgentHome
) -> None:
    call_tool(home)
    wipe(home)
    shutil.rmtree(home.home / "keys")
    done = verify(world, home)
    assert (done.code, "the memory tells of receipts" in done.err) == (1, True)


def test_a_memory_without_tools_tells_of_none(world: World, home: AgentHome) -> None:
    home.answer(says('{"tool_results":[{"a":1,"receipt_id":"receipt-1"}]}'))
    call_tool(home)
    assert (home.home / "memory.sqlite").exists()
    assert verify(world, home).code == 0


def test_verifying_makes_nothing(world: World, home: AgentHome) -> None:
    before = sorted(home.home.rglob("*"))
    verify(world, home)
    assert sorted(home.home.rglob("*")) == before
