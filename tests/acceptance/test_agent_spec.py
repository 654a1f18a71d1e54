"""The ten acceptance tests of the agent runtime, through the installed executable.

Each is named after its text; each has a home of its own, which begins with not even a directory.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.agents import calls, says
from tests.support.person import User


@pytest.fixture
def user(tmp_path: Path) -> User:
    directory = tmp_path / "person"
    directory.mkdir()
    return User(directory)


def test_1_init_creates_expected_files(user: User) -> None:
    assert not user.home.exists()
    user.good("init")
    assert (user.home / "config.toml").is_file()
    assert (user.home / "memory.sqlite").is_file()
    assert user.workspace.is_dir()


def test_2_config_validation_catches_invalid_autonomy(user: User) -> None:
    user.good("init")
    assert user.run("config", "validate").returncode == 0
    config = user.home / "config.toml"
    text = config.read_text()
    assert 'autonomy = "supervised"' in text
    config.write_text(text.replace('autonomy = "supervised"', 'autonomy = "godmode"'))
    done = user.run("config", "validate")
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert all(level in said for level in ("readonly", "supervised", "full"))


def test_3_mock_provider_text_only_response(user: User) -> None:
    user.scripted(says("hello"))
    done = user.run("agent", "-m", "hi")
    assert done.returncode == 0
    assert "hello" in done.stdout
    (conversation,) = json.loads(user.good("memory", "list", "--json"))
    shown = json.loads(user.good("memory", "show", conversation["conversation_id"], "--json"))
    assert [(turn["role"], turn["content"]) for turn in shown] == [
        ("user", "hi"),
        ("assistant", "hello"),
    ]


def test_4_model_triggered_file_list_tool(user: User) -> None:
    user.scripted(calls(("file_list", {"path": "."})), says("The files are: {{tool_output}}"))
    (user.workspace / "notes.txt").write_text("x")
    (user.directory / "outside.txt").write_text("x")
    done = user.run("agent", "-m", "list files")
    assert done.returncode == 0
    assert user.statuses() == [("file_list", "allowed")]
    assert "notes.txt" in done.stdout
    assert "outside.txt" not in done.stdout


def test_5_workspace_escape_blocked(user: User) -> None:
    user.scripted(
        calls(("file_read", {"path": "/etc/passwd"})), says("I was told: {{tool_output}}")
    )
    done = user.run("agent", "-m", "read it")
    assert done.returncode == 0
    assert user.statuses() == [("file_read", "denied")]
    assert "I was told: error: denied by" in done.stdout
    assert "root:" not in done.stdout


@pytest.mark.parametrize(
    ("reply", "status"), [("\n", "denied"), ("y\n", "allowed"), ("n\n", "denied")]
)
def test_6_supervised_approval(user: User, reply: str, status: str) -> None:
    user.scripted(calls(("file_write", {"path": "a.txt", "content": "hi\n"})), says("done"))
    code, seen = user.answering(reply, "agent", "-m", "write it")
    assert code == 0
    for line in ("Tool request:", "tool: file_write", "risk: medium", "Approve? ["):
        assert line in seen
    assert (user.workspace / "a.txt").exists() == (status == "allowed")
    assert user.statuses() == [("file_write", status)]


def test_6_without_a_terminal_approval_is_denied(user: User) -> None:
    user.scripted(calls(("file_write", {"path": "a.txt", "content": "hi\n"})), says("done"))
    assert user.run("agent", "-m", "write it").returncode == 0
    assert not (user.workspace / "a.txt").exists()
    assert user.statuses() == [("file_write", "denied")]


def test_7_forbidden_command_blocked(user: User) -> None:
    user.scripted(calls(("shell", {"command": "rm -rf /"})), says("no"))
    assert user.run("agent", "-m", "clean up").returncode == 0
    assert user.statuses() == [("shell", "denied")]


def test_8_receipt_chain_detects_tampering(user: User) -> None:
    user.scripted(*[calls(("time", {}))] * 3, says("done"))
    user.good("agent", "-m", "time")
    assert "valid: 3 receipts" in user.good("receipt", "verify")
    lines = user.receipts.read_text().splitlines(keepends=True)
    lines[1] = lines[1].replace('"time"', '"mine"')
    user.receipts.write_text("".join(lines))
    done = user.run("receipt", "verify")
    assert done.returncode == 1
    assert "invalid chain at receipt 2" in done.stdout + done.stderr


def test_9_provider_fallback(user: User) -> None:
    user.scripted(says("from the mock"))
    (user.home / "bad.json").write_text(json.dumps([{"error": "timeout"}]))
    config = user.home / "config.toml"
    config.write_text(
        config.read_text().replace('"local"', '"both"', 1)
        + f'[providers.models.bad]\nkind = "mock"\nfixture = "{user.home}/bad.json"\n'
        '[providers.models.both]\nkind = "reliable"\nproviders = ["bad", "local"]\n'
    )
    done = user.run("agent", "-m", "hi")
    assert done.returncode == 0
    assert "from the mock" in done.stdout
    assert "fallback" in done.stderr


def test_10_memory_search(user: User) -> None:
    user.scripted(says("noted"))
    user.good("agent", "-m", "The Aardvark adapter is broken", "--conversation", "before")
    assert "before" in user.good("memory", "search", "aardvark")


def events(text: str) -> Sequence[str]:
    return [json.loads(line)["event"] for line in text.splitlines() if line.startswith("{")]


def test_every_specified_event_is_logged(user: User) -> None:
    user.scripted(
        calls(("time", {}), ("file_read", {"path": "/etc/passwd"}), ("file_read", {"path": "no"})),
        says("done"),
    )
    done = user.run("agent", "-m", "hi", COILCLAW_LOG="json")
    stopped = user.run("estop", COILCLAW_LOG="json")
    found = {*events(done.stderr), *events(stopped.stderr)}
    assert found >= {
        "startup", "config_path", "workspace_path", "provider_selected", "channel_started",
        "conversation_started", "tool_requested", "tool_denied", "tool_completed", "tool_failed",
        "receipt_written", "memory_persisted", "estop_triggered",
    }  # fmt: skip
