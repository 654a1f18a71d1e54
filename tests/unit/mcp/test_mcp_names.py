"""What foreign tools are called here."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coilclaw.agent.mcp.definitions import LONGEST, tool_name
from coilclaw.agent.mcp.settings import McpServer, flaws

SERVER = st.from_regex(r"[A-Za-z0-9_-]{1,24}", fullmatch=True).filter(
    lambda name: not any(key == "" for key, _ in flaws(McpServer(name, command=("x",))))
)


def test_a_name_that_can_be_stays() -> None:
    assert tool_name("files", "read_text") == "files__read_text"


@pytest.mark.parametrize(
    "tool", ["read.text", "read text", "lösche", "x" * 60, "a-0123456789", "\u202ex", ""]
)
def test_another_one_is_changed_and_marked(tool: str) -> None:
    name = tool_name("files", tool)
    if tool:
        assert re.fullmatch(r"files__[A-Za-z0-9_-]*-[0-9a-f]{10}", name)
    assert len(name) <= LONGEST


@given(st.lists(st.tuples(SERVER, st.text(max_size=80)), max_size=8, unique=True))
def test_every_name_is_valid_and_no_two_tools_share_one(pairs: list[tuple[str, str]]) -> None:
    names = [tool_name(server, tool) for server, tool in pairs]
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names)
    assert len(set(names)) == len(pairs)


def test_the_border_between_server_and_tool_cannot_be_moved() -> None:
    assert flaws(McpServer("a__b", command=("x",))) != ()
    assert flaws(McpServer("a_", command=("x",))) != ()
    assert flaws(McpServer("a_b", command=("x",))) == ()
    assert tool_name("a", "b__c") == "a__b__c"


def test_a_server_cannot_take_the_name_that_another_of_its_tools_would_be_given() -> None:
    marked = tool_name("a", "x y")
    assert tool_name("a", marked.removeprefix("a__")) != marked
