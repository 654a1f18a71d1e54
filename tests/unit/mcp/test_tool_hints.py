"""What clients are told about our tools is what their calls may do."""

from __future__ import annotations

from coilclaw.agent.mcp.tool_server import offered_tool
from coilclaw.agent.tools.builtin import builtin_tools


def test_hints_are_made_from_effects_and_say_the_worst_where_those_are_unknown() -> None:
    hints = {
        tool.name: (told.read_only, told.destructive, told.open_world)
        for tool in builtin_tools()
        for told in (offered_tool(tool),)
    }
    looking, worst = (True, False, False), (False, True, True)
    for name in ("time", "file_list", "file_read", "memory_search"):
        assert hints[name] == looking
    assert hints["file_write"] == (False, True, False)
    assert hints["http"] == (True, False, True)
    assert hints["shell"] == worst
