"""Each item of Codex as a part, whole; and the calls that became no item."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coilclaw.kernel.errors import UsageError
from coilclaw.kernel.messages import Part, Usage
from coilclaw.runners.agent_answer import FORBIDDEN, inside, relative
from coilclaw.runners.codex.items import Items, diff_lines, usage_of
from coilclaw.workspace.process.confinement import SandboxSupport
from tests.support.codexserver import World, completed, end, item, raw_of
from tests.support.sandboxes import supported

TREE = Path("/work/tree")


@pytest.fixture
def items() -> Items:
    return Items(TREE, shell_denied=False)


@pytest.fixture(scope="module")
def support() -> SandboxSupport:
    return supported("bubblewrap")


def command(**more: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "command": "bash -lc ls",
        "cwd": "/work/tree",
        "aggregatedOutput": "a\n",
    }
    return item("commandExecution", **(given | {"exitCode": 0, "status": "completed"} | more))


COMMAND_INPUT = '{"command":"bash -lc ls","cwd":"/work/tree"}'


@pytest.mark.parametrize(
    ("value", "part"),
    [
        (
            item("agentMessage", text="Hello."),
            Part("text", text="Hello.", item_type="agentMessage", raw="R"),
        ),
        (
            item("reasoning", summary=["One.", "Two."], content=["x"]),
            Part("reasoning", text="One.\nTwo.", item_type="reasoning", raw="R"),
        ),
        (
            item("reasoning", summary=[], content=["Raw."]),
            Part("reasoning", text="Raw.", item_type="reasoning", raw="R"),
        ),
        (
            command(),
            Part(
                "tool",
                tool="shell",
                call_id="i1",
                input=COMMAND_INPUT,
                output="a\n",
                exit_code=0,
                item_type="commandExecution",
                raw="R",
            ),
        ),
        (
            command(status="declined", exitCode=None, aggregatedOutput=None),
            Part(
                "tool",
                text="declined",
                tool="shell",
                call_id="i1",
                input=COMMAND_INPUT,
                item_type="commandExecution",
                raw="R",
            ),
        ),
        (
            item(
                "fileChange",
                status="completed",
                changes=[
                    {"path": "/work/tree/a", "kind": {"type": "add"}, "diff": "x\n"},
                    {
                        "path": "/work/tree/b",
                        "kind": {"type": "update", "move_path": "/etc/c"},
                        "diff": "@@ -1 +1 @@\n-1\n+2\n",
                    },
                ],
            ),
            Part(
                "patch",
                tool="apply_patch",
                call_id="i1",
                output="add /work/tree/a\n  x\n  \nupdate /work/tree/b -> /etc/c\n"
                "  @@ -1 +1 @@\n  -1\n  +2\n  ",
                files=("a", "b", "/etc/c"),
                item_type="fileChange",
                raw="R",
            ),
        ),
        (
            item("fileChange", status="failed", changes=[]),
            Part(
                "patch",
                text="failed",
                tool="apply_patch",
                call_id="i1",
                item_type="fileChange",
                raw="R",
            ),
        ),
        (
            item("mcpToolCall", server="s", tool="t", arguments={"b": 1, "a": 0.5}, result=[1]),
            Part(
                "tool",
                tool="s/t",
                call_id="i1",
                input='{"a":0.5,"b":1}',
                output="[1]",
                item_type="mcpToolCall",
                raw="R",
            ),
        ),
        (
            item("plan", text="First."),
            Part("text", text="First.", item_type="plan", raw="R"),
        ),
        (
            item("webSearch", query="q"),
            Part(
                "tool",
                tool="webSearch",
                call_id="i1",
                input='{"id":"i1","query":"q","type":"webSearch"}',
                item_type="webSearch",
                raw="R",
            ),
        ),
        (item("userMessage", content=[]), None),
        (item("contextCompaction"), None),
    ],
)
def test_an_item_is_one_part(items: Items, value: Any, part: Part | None) -> None:
    assert items.read_completed(value, "R") == part


@pytest.mark.parametrize(
    "value",
    [
        item("agentMessage", text=1),
        item("reasoning", summary="x", content=None),
        command(command=None, cwd=3, exitCode=True, aggregatedOutput=[]),
        item("fileChange", changes={"a": 1}),
        item("fileChange", changes=[1, {"path": 2, "kind": 3}]),
        item("mcpToolCall"),
        {"type": None},
    ],
)
def test_an_item_of_another_shape_is_no_trouble(items: Items, value: Any) -> None:
    part = items.read_completed(value, "R")
    assert part is not None
    assert (part.text, part.exit_code, part.files) == ("", None, ())


def test_a_command_where_there_is_no_shell_is_marked() -> None:
    items = Items(TREE, shell_denied=True)
    part = items.read_completed(command(), "R")
    assert part is not None
    assert part.text == FORBIDDEN


def call(name: str = "exec_command", arguments: str = '{"cmd": "ls"}') -> dict[str, Any]:
    return {"type": "function_call", "call_id": "k1", "name": name, "arguments": arguments}


def output(text: Any = "no") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": "k1", "output": text}


@pytest.mark.parametrize(("denied", "text"), [(True, FORBIDDEN), (False, "")])
def test_a_call_that_became_no_item_is_a_part(denied: bool, text: str) -> None:
    items = Items(TREE, shell_denied=denied)
    said = "Chunk ID: 1\nProcess exited with code 7\nOutput:\nProcess exited with code 0\n"
    assert items.read_call(call(), "C") is None
    assert items.read_call(output(said), "R") == Part(
        "tool",
        text=text,
        tool="shell",
        call_id="k1",
        input='{"cmd":"ls"}',
        output="Process exited with code 0\n",
        exit_code=7,
        item_type="function_call_output",
        raw="R",
    )


@pytest.mark.parametrize(
    ("made", "tool", "given"),
    [
        (call("view_image", "{"), "view_image", '{"arguments":"{"}'),
        (
            {"type": "custom_tool_call", "call_id": "k1", "name": "apply_patch", "input": "*"},
            "apply_patch",
            '"*"',
        ),
        (
            {"type": "local_shell_call", "call_id": "k1", "action": {"command": ["ls"]}},
            "shell",
            '{"command":["ls"]}',
        ),
    ],
)
def test_calls_of_every_kind(items: Items, made: Any, tool: str, given: str) -> None:
    items.read_call(made, "C")
    part = items.read_call(output([{"text": "x"}]), "R")
    assert part is not None
    assert (part.tool, part.input, part.output) == (tool, given, '[{"text":"x"}]')


def test_a_call_that_became_an_item_is_no_second_part(items: Items) -> None:
    items.read_call(call(), "C")
    items.began({**command(), "id": "k1"}, "B")
    assert items.read_call(output(), "R") is None


def test_an_output_without_a_call_is_nothing(items: Items) -> None:
    assert items.read_call(output(), "R") is None
    assert items.read_call({"type": "message"}, "R") is None


def test_a_command_that_outlives_its_turn_is_told(items: Items) -> None:
    items.began(command(status="inProgress", exitCode=None, aggregatedOutput=None), "B")
    items.began(item("agentMessage", "i2"), "B")
    (part,) = items.list_unfinished()
    assert (part.text, part.call_id, part.raw) == ("inProgress", "i1", "B")
    assert items.list_unfinished() == []


def test_items_are_bounded(items: Items) -> None:
    for number in range(100_000):
        items.began({"id": str(number)}, "")
    with pytest.raises(UsageError):
        items.began({"id": "one more"}, "")


@pytest.mark.parametrize(
    ("path", "shown", "lies_inside"),
    [
        ("a/b", "a/b", True),
        ("/work/tree/a", "a", True),
        ("/work/tree/../x", "/work/x", False),
        ("../tree2/a", "/work/tree2/a", False),
        ("/work/tree", "/work/tree", False),
        ("/work/treeish/a", "/work/treeish/a", False),
    ],
)
def test_paths(path: str, shown: str, lies_inside: bool) -> None:
    assert relative(path, TREE) == shown
    assert inside(path, TREE) is lies_inside


def test_a_change_without_a_kind_is_shown() -> None:
    assert diff_lines([{"path": "a"}]) == ["change a", "  "]
    assert diff_lines([{"path": "a\nb", "kind": "add", "diff": "add c"}]) == [
        'add "a\\nb"',
        "  add c",
    ]


def test_tokens() -> None:
    assert usage_of({"inputTokens": 1, "outputTokens": 2}) == Usage(1, 2)
    assert usage_of({"inputTokens": "1", "outputTokens": 2}) is None
    assert usage_of(None) is None


def test_the_raw_event_of_a_part_is_what_was_sent(tmp_path: Path, support: SandboxSupport) -> None:
    world = World(tmp_path, support)
    sent = completed(item("agentMessage", text="Grüße"))
    half = completed(item("reasoning", summary=["half \ud83d"]))
    world.play(sent, half, end())
    assert [part.raw for part in world.parts] == [
        raw_of(sent).replace("\\u00fc", "ü").replace("\\u00df", "ß"),
        raw_of(half).replace("\\ud83d", "?"),
    ]
    assert [part.text for part in world.parts] == ["Grüße", "half ?"]
