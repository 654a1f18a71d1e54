"""How foreign tools come to the guard, and what that costs when there are none."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from coilclaw.agent.approvals import ApprovalStore
from coilclaw.agent.estop import Estop
from coilclaw.agent.guarded_calls import RemotePeople
from coilclaw.agent.mcp import server_tools
from coilclaw.agent.mcp.definitions import Definition, ToolListing, check_definition
from coilclaw.agent.mcp.pins import Pins, ServerPins
from coilclaw.agent.mcp.server_tools import ComparedTool
from coilclaw.agent.mcp.settings import McpServer, identity
from coilclaw.kernel.effects import Decision, Risk, Verdict
from coilclaw.kernel.messages import ApprovalReply, ApprovalRequest, Json, ToolCall, ToolResult
from coilclaw.kernel.secret import Secret
from tests.support.agents import AgentHome
from tests.support.children import PATIENCE_S

PYTHON = os.path.realpath(sys.executable)
"""The interpreter itself: a checkout may lie below /tmp, which a sandbox covers."""

STUB = Path(__file__).with_name("stubserver.py")
NOW = datetime(2026, 5, 12, 14, 0, 7, tzinfo=UTC)


def definition(name: str, description: str = "") -> Definition:
    schema: dict[str, Json] = {"type": "object"}
    return check_definition({"name": name, "description": description, "inputSchema": schema})


def test_nothing_is_loaded_when_no_server_is_configured(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom contextlib import ExitStack\nfrom pathlib import Path\n"
        "from coilclaw.agent.mcp.server_tools import make_server_tools\n"
        "assert make_server_tools({}, Path('/nowhere'), ExitStack()) == ()\n"
        "heavy = {'mcp', 'asyncio', 'pydantic', 'coilclaw.agent.mcp.connection'}\n"
        "loaded = heavy & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_approved_tools_are_there_without_their_servers_and_no_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    known = McpServer("known", command=("no-such-program",))
    off = replace(known, name="off", enabled=False)
    servers = {each.name: each for each in (known, off, replace(known, name="unknown"))}
    for name in ("known", "off"):
        Pins(tmp_path).approve(name, identity(known), [definition("b"), definition("a b")], "now")
    with ExitStack() as stack, caplog.at_level(logging.WARNING):
        tools = server_tools.make_server_tools(servers, tmp_path, stack)
    assert [tool.name for tool in tools] == ["known__a_b-054e71c428", "known__b"]
    assert "the MCP server unknown is not approved" in caplog.text


def test_secrets_are_what_goes_into_headers_and_what_is_called_like_one() -> None:
    servers = {
        "a": McpServer(
            "a", command=("x",), env=("NOTES_TOKEN", "HOME", "SHORT_KEY", "NOT_SET_KEY")
        ),
        "b": McpServer("b", url="https://b", token_env="BEARER", headers={"X-A": "TEAM"}),
    }
    environ = {
        "NOTES_TOKEN": "12345678",
        "HOME": "/home/somebody",
        "SHORT_KEY": "1234567",
        "BEARER": "abcdefgh ",
        "TEAM": "the-blue-team",
        "OTHER_KEY": "not-of-these-servers",
    }
    assert set(server_tools.list_server_secrets(servers, environ)) == {
        Secret("12345678"),
        Secret("abcdefgh"),
        Secret("the-blue-team"),
    }


def test_what_a_server_offers_is_held_against_what_was_approved() -> None:
    server = McpServer("a", command=("x",))
    listed = ToolListing(
        {name: definition(name, "now") for name in ("same", "changed", "new")},
        (("'bad'", "it is bad"),),
    )
    pinned = ServerPins(
        identity(server),
        "then",
        {
            "same": definition("same", "now"),
            "changed": definition("changed", "then"),
            "gone": definition("gone"),
        },
    )
    assert server_tools.compare_tools(server, listed, pinned) == [
        ComparedTool("'bad'", "refused", "it is bad"),
        ComparedTool("changed", "changed"),
        ComparedTool("gone", "gone"),
        ComparedTool("new", "new"),
        ComparedTool("same", "approved"),
    ]
    other = server_tools.compare_tools(replace(server, command=("y",)), listed, pinned)
    assert {one.standing for one in other} == {"new", "refused"}


def test_nobody_approves_what_is_no_call_of_a_client(tmp_path: Path) -> None:
    people = RemotePeople(ApprovalStore(tmp_path, lambda: NOW), Estop.of(tmp_path))
    verdict = Verdict(Decision.ASK, Risk.MEDIUM, "rule", "reason")
    answer = people.approve(ApprovalRequest("t", "{}", verdict, (), "0" * 64))
    assert (answer.reply, answer.by) == (ApprovalReply.NO, "nobody")
    assert not (tmp_path / "approvals.jsonl").exists()


@pytest.fixture
def agent(tmp_path: Path) -> AgentHome:
    made = AgentHome.make(tmp_path, '[security]\nautonomy = "full"\n')
    shutil.copy(STUB, made.workspace / "stubserver.py")
    listed = [
        {"name": name, "description": "", "inputSchema": {"type": "object"}}
        for name in ("echo", "hang")
    ]
    (made.workspace / "tools.json").write_text(json.dumps(listed))
    return made


SERVER = McpServer("stub", command=(PYTHON, "-I", "stubserver.py", "tools.json"))


def test_the_emergency_stop_ends_a_foreign_call_at_once(agent: AgentHome) -> None:
    Pins(agent.home).approve(
        "stub", identity(SERVER), [definition("echo"), definition("hang")], "now"
    )
    with agent.runtime() as runtime, ExitStack() as stack:
        tools = server_tools.make_server_tools({"stub": SERVER}, agent.home, stack)
        runtime.guard.tools = {**runtime.guard.tools, **{tool.name: tool for tool in tools}}
        runtime.guard.allowed |= {tool.name for tool in tools}
        result = runtime.call(ToolCall("1", "stub__echo", {"text": "hi"}))
        assert result.output == "hi"
        results: list[ToolResult] = []
        thread = threading.Thread(
            target=lambda: results.append(runtime.call(ToolCall("2", "stub__hang", {})))
        )
        thread.start()
        while not (agent.workspace / "hanging").exists():
            time.sleep(0.01)
        began = time.monotonic()
        runtime.guard.estop.trigger("test")
        thread.join()
        assert time.monotonic() - began < PATIENCE_S
        assert results[0].error == "stopped: the emergency stop is set"
    records = agent.records()
    assert [(r["tool"], r["status"]) for r in records] == [
        ("stub__echo", "allowed"),
        ("stub__hang", "failed"),
    ]
    assert records[0]["sandbox"] == records[1]["sandbox"] == result.metadata["sandbox"]


def test_arguments_are_held_against_the_schema_before_a_server_hears_of_them(
    agent: AgentHome,
) -> None:
    strict = check_definition(
        {
            "name": "echo",
            "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
        }
    )
    Pins(agent.home).approve("stub", identity(SERVER), [strict], "now")
    with agent.runtime() as runtime, ExitStack() as stack:
        tools = server_tools.make_server_tools({"stub": SERVER}, agent.home, stack)
        runtime.guard.tools = {tool.name: tool for tool in tools}
        runtime.guard.allowed = frozenset(runtime.guard.tools)
        wrong = runtime.call(ToolCall("1", "stub__echo", {"text": 3}))
        assert wrong.metadata["rule"] == "arguments.schema"
        # And the definition that was approved is not the one that the server has.
        changed = runtime.call(ToolCall("2", "stub__echo", {"text": "x"}))
        assert changed.metadata["rule"] == "mcp.changed"
    assert [r["status"] for r in agent.records()] == ["denied", "denied"]
