"""Every tool, with random and hostile arguments: one call, one receipt, always."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coilclaw.agent.mcp import server_tools
from coilclaw.agent.mcp.definitions import check_definition
from coilclaw.agent.mcp.pins import Pins
from coilclaw.agent.mcp.settings import McpServer, identity
from coilclaw.agent.receipts.verification import verify
from coilclaw.agent.settings import PluginSettings
from coilclaw.app.agent_runtime import Runtime
from coilclaw.kernel.effects import Risk
from coilclaw.kernel.messages import ApprovalAnswer, ApprovalReply, ApprovalRequest, Json, ToolCall
from tests.support.agents import AgentHome, Person
from tests.support.pluginworld import installed, make
from tests.support.scale import scaled
from tests.support.schemavalues import JSON

STUB = Path(__file__).parents[1] / "unit" / "mcp" / "stubserver.py"
PYTHON = os.path.realpath(sys.executable)
PLUGIN = """#!/bin/sh
case $(cat) in
*crash*) kill -9 $$ ;;
*silent*) exit 0 ;;
*noise*) printf 'no\\377JSON' ;;
*list*) echo '[]' ;;
*odd*) echo '{"success": "yes", "output": {"a": 1}, "metadata": 7}' ;;
*) echo '{"success": true, "output": "ok"}' ;;
esac
"""
MCP_TOOLS = ("echo", "big", "garbage", "refuse", "fail", "malformed", "kinds", "die")
WORDS = (
    *("..", "../x", "/etc/passwd", "/", "", ".", "a.txt", "link/x", ".git/config", "a/" * 2000),
    *("\0", "a\0b", "\ud800", "\u202e", "\x1b[2J", "%2e%2e/x", "~/.ssh/id_rsa", "C:\\x", "-rf"),
    *("rm -rf /", "$(reboot)", "`id`", "ls", "cat <<EOF", "'", "echo $((1/0))", "(" * 3000),
    *("http://169.254.169.254/", "file:///etc/passwd", "http://[::1", "https://\ud800/"),
    "*** Begin Patch\n*** Add File: ../x\n+y\n*** End Patch\n",
    "*** Begin Patch\n*** Delete File: .\n*** End Patch\n",
    *("--- a/../x\n+++ b/../x\n@@ -1 +1 @@\n-a\n+b\n", "[" * 9000),
    '{"files": [{"path": "../x", "content": ""}]}',
    '{"patches": [{"path": "a.txt", "replacements": [{"find": "", "replace": ""}]}]}',
    *("crash", "silent", "noise", "list", "odd", "(a+)+$", "[", "x" * 70_000),
)
HOSTILE: st.SearchStrategy[Any] = (
    st.sampled_from(WORDS)
    | st.text(max_size=20)
    | st.sampled_from([None, True, -1, 0, 2**63, 10**400, 1e308, float("nan"), float("inf")])
    | st.lists(st.sampled_from(WORDS), max_size=3)
    | JSON
)


@dataclass
class Unhelpful(Person):
    """Approves what stays in the workspace; no process and no request leaves by its word."""

    def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        yes = request.tool not in {"shell", "http"}
        return ApprovalAnswer(ApprovalReply.YES if yes else ApprovalReply.NO, self.name)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> AgentHome:
    made = AgentHome.make(tmp_path_factory.mktemp("guard"))
    (made.workspace / "a.txt").write_text("one\n")
    (made.workspace / "link").symlink_to("/etc")
    return made


@pytest.fixture(scope="module")
def runtime(home: AgentHome) -> Iterator[Runtime]:
    """A runtime with every builtin tool, a plugin and a foreign server."""
    with home.runtime(Unhelpful()) as opened, ExitStack() as stack:
        source = make(home.home / "source", PLUGIN)
        plugin = installed(home.home, source, PluginSettings(risk=Risk.LOW))
        shutil.copy(STUB, home.workspace / "stubserver.py")
        listed: list[dict[str, Json]] = [
            {"name": name, "description": "", "inputSchema": {"type": "object"}}
            for name in MCP_TOOLS
        ]
        (home.workspace / "tools.json").write_text(json.dumps(listed))
        server = McpServer(
            "stub", command=(PYTHON, "-I", "stubserver.py", "tools.json"), risk=Risk.LOW
        )
        Pins(home.home).approve(
            "stub", identity(server), [check_definition(one) for one in listed], "now"
        )
        foreign = server_tools.make_server_tools({"stub": server}, home.home, stack)
        guard = opened.guard
        guard.tools = {**guard.tools, **{tool.name: tool for tool in (plugin, *foreign)}}
        guard.allowed = frozenset(guard.tools)
        yield opened


def arguments(schema: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Arguments of the form that a tool wants with hostile contents, and of no form at all."""
    known = {name: _fitting(one) for name, one in schema.get("properties", {}).items()}
    needed = {name: one for name, one in known.items() if name in schema.get("required", ())}
    fitting = st.fixed_dictionaries(
        needed, optional={name: one for name, one in known.items() if name not in needed}
    )
    names = st.sampled_from(sorted(known) or ["text"]) | st.text(max_size=5)
    return fitting | fitting | fitting | st.dictionaries(names, HOSTILE, max_size=3)


def _fitting(schema: Any) -> st.SearchStrategy[Any]:
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "string":
            return st.sampled_from(WORDS) | st.text(min_size=1, max_size=20)
        case "integer":
            return st.sampled_from([schema.get("minimum", -1), schema.get("maximum", 2**63)])
        case "boolean":
            return st.booleans()
        case "array":
            return st.lists(_fitting(schema.get("items", {})), max_size=3)
        case _:
            return HOSTILE


def check_call(runtime: Runtime, home: AgentHome, name: str, given_args: dict[str, Any]) -> None:
    before = home.receipts.stat().st_size if home.receipts.exists() else 0
    result = runtime.call(ToolCall("call-1", name, given_args))
    with home.receipts.open("rb") as file:
        file.seek(before)
        (line,) = file.read().splitlines()
    receipt = json.loads(line)
    assert (receipt["id"], receipt["tool"]) == (result.receipt_id, name)
    assert receipt["status"] == result.metadata["status"]
    assert (receipt["status"] == "allowed") is result.success


def check_chain(runtime: Runtime) -> None:
    book = runtime.guard.book
    assert book is not None
    found = verify(book, lambda _: False)
    assert found.ok, found


def names_of(runtime: Runtime, owner: Callable[[str], bool]) -> list[str]:
    return [name for name, tool in runtime.guard.tools.items() if owner(tool.owner)]


def try_tools(
    runtime: Runtime, home: AgentHome, owner: Callable[[str], bool], examples: int
) -> None:
    names = names_of(runtime, owner)
    assert names

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck), database=None)
    @given(st.data())
    def attempt(data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(names))
        schema: Any = runtime.guard.tools[name].parameters_schema
        args = data.draw(arguments(schema))
        check_call(runtime, home, name, args)

    attempt()
    check_chain(runtime)


def test_every_call_of_a_builtin_tool_leaves_one_receipt(runtime: Runtime, home: AgentHome) -> None:
    try_tools(runtime, home, lambda owner: owner == "coilclaw", scaled(full=600, default=80))


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("apply_changes", lambda word: {"changes": word}),
        ("file_write", lambda word: {"path": word, "content": word}),
        ("shell", lambda word: {"command": word}),
        ("http", lambda word: {"url": word}),
    ],
)
def test_every_hostile_word_leaves_one_receipt(
    runtime: Runtime, home: AgentHome, name: str, make: Callable[[str], dict[str, Any]]
) -> None:
    for word in WORDS:
        check_call(runtime, home, name, make(word))
    check_chain(runtime)


def test_every_call_of_a_plugin_leaves_one_receipt(runtime: Runtime, home: AgentHome) -> None:
    for word in ("crash", "silent", "noise", "list", "odd", "fine"):
        check_call(runtime, home, "sample_tool", {"text": word})
    try_tools(runtime, home, lambda owner: owner.startswith("plugin:"), scaled(full=50, default=4))


def test_every_call_of_a_foreign_tool_leaves_one_receipt(runtime: Runtime, home: AgentHome) -> None:
    for name in MCP_TOOLS:
        check_call(runtime, home, f"stub__{name}", {"text": "x", "size": 10})
    try_tools(runtime, home, lambda owner: owner.startswith("mcp:"), scaled(full=100, default=4))


def test_a_name_that_no_tool_has_leaves_one_receipt(runtime: Runtime) -> None:
    @settings(max_examples=20)
    @given(st.text(max_size=300) | st.sampled_from(WORDS))
    def attempt(name: str) -> None:
        result = runtime.call(ToolCall("call-1", name, {}))
        assert result.receipt_id is not None
        assert result.metadata["rule"] == "tool.unknown"

    attempt()
    check_chain(runtime)
