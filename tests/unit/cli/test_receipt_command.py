"""``coilclaw receipt verify``: what it says, and how it ends."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from coilclaw.kernel.checkpoint import create_key
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
    assert (done.code, done.out) == (0, "nothing to verify: no tool has been called yet\n")
    told = json.loads(verify(world, home, "--json").out)
    assert (told["ok"], told["state"], told["receipts"]) == (True, "nothing", 0)


def test_receipts_that_hold_are_valid(world: World, home: AgentHome) -> None:
    call_tool(home)
    assert verify(world, home).out.startswith("valid: 1 receipt, 1 intent, ")
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
    assert (done.code, "the memory refers to receipts" in done.err) == (1, True)


def test_a_memory_without_tools_tells_of_none(world: World, home: AgentHome) -> None:
    home.answer(says('{"tool_results":[{"a":1,"receipt_id":"receipt-1"}]}'))
    call_tool(home)
    assert (home.home / "memory.sqlite").exists()
    assert verify(world, home).code == 0


def test_verifying_makes_nothing(world: World, home: AgentHome) -> None:
    before = sorted(home.home.rglob("*"))
    verify(world, home)
    assert sorted(home.home.rglob("*")) == before


def checkpoint(world: World, home: AgentHome, *options: str) -> Done:
    return world.run("receipt", "checkpoint", *options, COILCLAW_HOME=str(home.home))


def test_a_checkpoint_is_printed_and_compared(
    world: World, home: AgentHome, tmp_path: Path
) -> None:
    call_tool(home)
    file = tmp_path / "checkpoints"
    file.write_text(checkpoint(world, home).out)
    done = verify(world, home, "--checkpoint", str(file))
    assert (done.code, "not signed" in done.err) == (0, True)
    shutil.copytree(home.home, tmp_path / "older")
    home.answer(calls(("time", {})), says("done"))
    call_tool(home)
    with file.open("a") as kept:
        kept.write(checkpoint(world, home).out)
    assert json.loads(verify(world, home, "--checkpoint", str(file), "--json").out)[
        "checkpoints"
    ] == {"unsigned": 2}
    shutil.rmtree(home.home)
    (tmp_path / "older").rename(home.home)
    assert verify(world, home).code == 0, "an older copy holds by itself"
    done = verify(world, home, "--checkpoint", str(file))
    assert (done.code, "rolled back" in done.err) == (1, True)


def test_a_signed_checkpoint_is_checked_with_the_key(
    world: World, home: AgentHome, tmp_path: Path
) -> None:
    call_tool(home)
    missing = checkpoint(world, home, "--sign")
    assert (missing.code, "key.missing" in missing.err) == (2, True)
    world.run("keys", "new", COILCLAW_HOME=str(home.home))
    pem, file, other = tmp_path / "pem", tmp_path / "cp", tmp_path / "other.pem"
    pem.write_text(world.run("keys", "show", COILCLAW_HOME=str(home.home)).out)
    other.write_bytes(create_key(tmp_path / "other").public.pem())
    file.write_text(checkpoint(world, home, "--sign").out, encoding="utf-8")
    for key in ((), ("--key", str(pem))):
        done = verify(world, home, "--checkpoint", str(file), *key)
        assert (done.code, "signed by the key" in done.err) == (0, True)
    done = verify(world, home, "--checkpoint", str(file), "--key", str(other))
    assert (done.code, f"signed by another key than {other}" in done.err) == (1, True)
    assert "--key" not in done.err
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("time 20", "time 19"), encoding="utf-8")
    assert verify(world, home, "--checkpoint", str(file)).code == 1
    file.write_text(text.partition("\n\n")[0] + "\n", encoding="utf-8")
    assert verify(world, home, "--checkpoint", str(file)).code == 0
    assert verify(world, home, "--checkpoint", str(file), "--key", str(pem)).code == 1


@pytest.mark.parametrize(
    ("text", "code"),
    [("nonsense\n", 2), ("", 1), ("coilclaw/runs/x\n0\n" + "A" * 43 + "=\n\n", 1)],
)
def test_a_file_without_a_checkpoint_of_receipts_is_no_success(
    world: World, home: AgentHome, tmp_path: Path, text: str, code: int
) -> None:
    call_tool(home)
    (tmp_path / "cp").write_text(text)
    done = verify(world, home, "--checkpoint", str(tmp_path / "cp"))
    assert done.code == code
    assert f"{tmp_path / 'cp'} holds no checkpoint" in done.err or text


def test_receipts_that_do_not_hold_get_no_checkpoint(world: World, home: AgentHome) -> None:
    assert checkpoint(world, home).code == 2
    call_tool(home)
    home.receipts.write_text(home.receipts.read_text().replace('"tool":"time"', '"tool":"tine"'))
    done = checkpoint(world, home, "--sign")
    assert (done.code, done.out, "checkpoint.refused" in done.err) == (1, "", True)


def test_checkpoints_are_written_as_configured_and_a_lag_is_said(
    world: World, home: AgentHome, tmp_path: Path
) -> None:
    file = tmp_path / "elsewhere" / "checkpoints"
    home.configure(f'[receipts]\ncheckpoint = "{file}"\ncheckpoint_every = 1\n')
    call_tool(home)
    done = verify(world, home)
    assert (done.code, "last checkpoint: none yet, receipts: 1" in done.err) == (0, True)
    told = json.loads(verify(world, home, "--json").out)["last_checkpoint"]
    assert (told["behind"], told["late"], "No such file" in told["problem"]) == (1, True, True)
    doctor = world.run("doctor", COILCLAW_HOME=str(home.home))
    assert "missing  checkpoint" in doctor.out
    file.parent.mkdir()
    home.answer(calls(("time", {})), says("done"))
    call_tool(home)
    done = verify(world, home, "--checkpoint", str(file))
    assert (done.code, "warning" in done.err) == (0, False)
    doctor = world.run("doctor", COILCLAW_HOME=str(home.home))
    (line,) = [line for line in doctor.out.splitlines() if " checkpoint " in line]
    assert line.split(maxsplit=2) == [
        "ok",
        "checkpoint",
        "last checkpoint: after 2 receipts, receipts since: 0",
    ]


def test_a_rollback_below_the_last_checkpoint_needs_no_outsider(
    world: World, home: AgentHome, tmp_path: Path
) -> None:
    home.configure(f'[receipts]\ncheckpoint = "{tmp_path / "cp"}"\ncheckpoint_every = 1\n')
    call_tool(home)
    logs = {path: path.read_bytes() for path in home.home.glob("tool_receipts*")}
    home.answer(calls(("time", {})), says("done"))
    call_tool(home)
    assert verify(world, home).code == 0
    for path, data in logs.items():
        path.write_bytes(data)
    done = verify(world, home)
    assert (done.code, "rolled back" in done.err) == (1, True)


def test_the_agent_cannot_write_the_file_of_checkpoints(home: AgentHome, tmp_path: Path) -> None:
    file = tmp_path / "checkpoints"
    home.configure(
        f'[receipts]\ncheckpoint = "{file}"\n'
        '[security]\nautonomy = "full"\nworkspace_only = false\n'
    )
    home.answer(
        calls(
            ("file_write", {"path": str(file), "content": "x"}),
            ("file_write", {"path": str(tmp_path / "beside"), "content": "x"}),
        ),
        says("done"),
    )
    call_tool(home)
    assert [one["status"] for one in home.records()] == ["denied", "allowed"]
    assert not file.exists()
