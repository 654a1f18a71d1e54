"""One script for every agent: commands and files become calls of the tools that are offered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coilclaw.cli.model_server import chat_completions, gemini, messages, responses
from coilclaw.cli.model_server.dialect import OfferedTool
from coilclaw.cli.model_server.offered_tools import make_call, make_patch
from coilclaw.cli.model_server.script import CallTool, RunShell, ScriptedWrite
from coilclaw.cli.model_server.server import ModelServer
from coilclaw.kernel.errors import UsageError
from tests.unit.modelserver.asking import DIALECTS, Question, ask, hear

FILE = ScriptedWrite("src/a b.txt", "one\ntwo\n")
PATCH = "*** Begin Patch\n*** Add File: src/a b.txt\n+one\n+two\n*** End Patch\n"


def schema(*names: str, required: tuple[str, ...] = (), **types: Any) -> dict[str, Any]:
    properties = {name: {"type": "string"} for name in names} | types
    return {"type": "object", "properties": properties, "required": list(required)}


def offered(dialect: str, name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return a request's extra fields that offer one function."""
    function = {"name": name, "parameters": parameters}
    tools: dict[str, list[Any]] = {
        "chat": [{"type": "function", "function": function}],
        "responses": [{"type": "function", **function}],
        "messages": [{"name": name, "input_schema": parameters}],
        "gemini": [{"functionDeclarations": [function]}],
    }
    return {"tools": tools[dialect]}


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        (OfferedTool("exec_command", schema=schema("cmd", "workdir")), {"cmd": "ls"}),
        (OfferedTool("shell_command", schema=schema("command")), {"command": "ls"}),
        (
            OfferedTool("shell", schema=schema(command={"type": "array"})),
            {"command": ["bash", "-lc", "ls"]},
        ),
        (
            OfferedTool("shell", schema=schema(argv={"type": "array"})),
            {"argv": ["bash", "-lc", "ls"]},
        ),
        (
            OfferedTool("bash", schema=schema("command", "description", required=("description",))),
            {"command": "ls", "description": "scripted"},
        ),
        (OfferedTool("Bash", schema=schema("command", "description")), {"command": "ls"}),
        (OfferedTool("run_shell_command", schema=schema("command")), {"command": "ls"}),
        (OfferedTool("bash"), {"command": "ls"}),
    ],
)
def test_a_command(tool: OfferedTool, arguments: dict[str, Any]) -> None:
    assert make_call(RunShell("ls"), [OfferedTool("other"), tool]) == CallTool(tool.name, arguments)


def test_a_command_for_the_shell_of_the_dialect() -> None:
    found = responses.tools({"tools": [{"type": "local_shell"}]})
    assert make_call(RunShell("ls"), found) == CallTool("local_shell", argv=("bash", "-lc", "ls"))
    script = [{"shell": "ls"}]
    with ModelServer(script) as server:
        for stream in (False, True):
            question = Question("responses", stream, extra={"tools": [{"type": "local_shell"}]})
            heard = hear(question, ask(server, question))
            assert heard.calls == (("local_shell", ["bash", "-lc", "ls"]),)


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        (OfferedTool("apply_patch", "freeform"), CallTool("apply_patch", input=PATCH)),
        (
            OfferedTool("apply_patch", schema=schema("patchText")),
            CallTool("apply_patch", {"patchText": PATCH}),
        ),
        (OfferedTool("apply_patch"), CallTool("apply_patch", {"input": PATCH})),
        (
            OfferedTool("write", schema=schema("filePath", "content")),
            CallTool("write", {"filePath": FILE.path, "content": FILE.content}),
        ),
        (
            OfferedTool("Write", schema=schema("file_path", "content")),
            CallTool("Write", {"file_path": FILE.path, "content": FILE.content}),
        ),
        (
            OfferedTool("file_write", schema=schema("path", "content", mode={"type": "integer"})),
            CallTool("file_write", {"path": FILE.path, "content": FILE.content}),
        ),
        (
            OfferedTool(
                "str_replace_based_edit_tool",
                schema=schema("command", "path", "file_text", required=("command", "path")),
            ),
            CallTool(
                "str_replace_based_edit_tool",
                {"path": FILE.path, "file_text": FILE.content, "command": "create"},
            ),
        ),
        (
            OfferedTool("bash"),
            CallTool(
                "bash",
                {"command": "mkdir -p -- src && printf %s 'one\ntwo\n' > 'src/a b.txt'"},
            ),
        ),
    ],
)
def test_a_file(tool: OfferedTool, expected: CallTool) -> None:
    assert make_call(FILE, [OfferedTool("other"), tool]) == expected


def test_a_writing_tool_is_preferred_to_a_shell() -> None:
    found = make_call(FILE, [OfferedTool("bash"), OfferedTool("write_file")])
    assert found == CallTool("write_file", {"path": FILE.path, "content": FILE.content})


@pytest.mark.parametrize(
    ("content", "body"),
    [("", ""), ("a", "+a\n"), ("a\n", "+a\n"), ("a\n\nb\n", "+a\n+\n+b\n"), ("\n", "+\n")],
)
def test_a_patch_that_adds_a_file(content: str, body: str) -> None:
    patch = f"*** Begin Patch\n*** Add File: f\n{body}*** End Patch\n"
    assert make_patch(ScriptedWrite("f", content)) == patch


@pytest.mark.parametrize(
    ("kind", "filler"),
    [
        ({"type": "string"}, "scripted"),
        ({"type": "STRING"}, "scripted"),
        ({"type": "BOOLEAN"}, False),
        ({"type": "integer"}, 1),
        ({"type": "array"}, []),
        ({"type": "object"}, {}),
        ({"type": "string", "enum": ["a", "b"]}, "a"),
        ({}, "scripted"),
        (None, "scripted"),
    ],
)
def test_every_other_required_argument_is_filled(kind: Any, filler: Any) -> None:
    tool = OfferedTool("bash", schema=schema("command", required=("x", "command"), x=kind))
    assert make_call(RunShell("ls"), [tool]) == CallTool("bash", {"command": "ls", "x": filler})


def test_no_tool_for_it_is_an_error_that_names_what_is_offered() -> None:
    with pytest.raises(UsageError) as caught:
        make_call(RunShell("ls"), [OfferedTool("read"), OfferedTool("glob")])
    assert caught.value.message == (
        "the script needs a shell tool, but the request offers only: read, glob"
    )
    with pytest.raises(UsageError) as caught:
        make_call(FILE, [])
    assert caught.value.message == (
        "the script needs a file-writing or shell tool, but the request offers only: nothing"
    )


@pytest.mark.parametrize("dialect", DIALECTS)
def test_that_error_reaches_the_client(dialect: str) -> None:
    with ModelServer([{"shell": "ls"}]) as server:
        got = ask(server, Question(dialect))
    assert got.status == 400
    assert got.json["error"]["message"].startswith("the script needs a shell tool")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_actions_are_parallel_calls(dialect: str, stream: bool) -> None:
    script = [{"shell": ["ls", "pwd"], "write": {"path": "a", "content": "x"}}]
    question = Question(dialect, stream, extra=offered(dialect, "bash", schema("command")))
    with ModelServer(script) as server:
        assert hear(question, ask(server, question)).calls == (
            ("bash", {"command": "ls"}),
            ("bash", {"command": "pwd"}),
            ("bash", {"command": "printf %s x > a"}),
        )


def test_the_command_that_writes_a_file_writes_it_exactly(tmp_path: Path) -> None:
    import subprocess

    content = 'it\'s \\n "quoted" $HOME `x`\n\nno newline at the end'
    found = make_call(ScriptedWrite("deep/er/a file.txt", content), [OfferedTool("bash")])
    assert isinstance(found, CallTool)
    subprocess.run(["sh", "-c", str(found.arguments["command"])], cwd=tmp_path, check=True)
    assert (tmp_path / "deep/er/a file.txt").read_text() == content


# ---- what a request offers ------------------------------------------------------------------


def test_tools_of_a_chat() -> None:
    body = {
        "tools": [
            {"type": "function", "function": {"name": "f", "parameters": {"a": 1}}},
            {"type": "custom", "custom": {"name": "apply_patch"}},
            {"type": "function"},
            "junk",
        ]
    }
    assert chat_completions.tools(body) == [
        OfferedTool("f", schema={"a": 1}),
        OfferedTool("apply_patch", "freeform"),
    ]


def test_tools_of_a_response() -> None:
    inner = {"type": "function", "name": "add", "parameters": {"b": 2}}
    body = {
        "tools": [
            {"type": "function", "name": "f", "parameters": {"a": 1}},
            {"type": "custom", "name": "apply_patch", "format": {}},
            {"type": "local_shell"},
            {"type": "namespace", "name": "mcp__probe", "tools": [inner]},
            {"type": "web_search"},
        ],
        "input": [{"type": "additional_tools", "tools": [{"type": "function", "name": "late"}]}],
    }
    assert responses.tools(body) == [
        OfferedTool("f", schema={"a": 1}),
        OfferedTool("apply_patch", "freeform"),
        OfferedTool("local_shell", "local_shell"),
        OfferedTool("add", schema={"b": 2}, namespace="mcp__probe"),
        OfferedTool("late"),
    ]


def test_a_tool_in_a_namespace_is_called_with_it() -> None:
    inner = {"type": "function", "name": "add", "parameters": {}}
    extra = {"tools": [{"type": "namespace", "name": "mcp__probe", "tools": [inner]}]}
    script = [{"tool_calls": [{"name": "mcp__probe/add", "arguments": {"a": 1}}]}]
    with ModelServer(script) as server:
        for stream in (False, True):
            question = Question("responses", stream, extra=extra)
            heard = hear(question, ask(server, question))
            assert heard.calls == (("mcp__probe/add", {"a": 1}),)


def test_tools_of_a_message_and_of_gemini() -> None:
    assert messages.tools({"tools": [{"name": "Bash", "input_schema": {"a": 1}}, {}]}) == [
        OfferedTool("Bash", schema={"a": 1})
    ]
    declared = [{"name": "f", "parametersJsonSchema": {"a": 1}}]
    assert gemini.tools({"tools": [{"function_declarations": declared}, {"googleSearch": {}}]}) == [
        OfferedTool("f", schema={"a": 1})
    ]


def test_freeform_input_for_a_tool_with_arguments() -> None:
    tool = OfferedTool("apply_patch", schema=schema("patchText"))
    found = make_call(CallTool("apply_patch", {}, "*** x", "call_7"), [tool])
    assert found == CallTool("apply_patch", {"patchText": "*** x"}, id="call_7")
