"""Turn the actions of a script into calls of the tools that a request offers."""

from __future__ import annotations

import posixpath
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Final, assert_never

from coilclaw.cli.model_server.dialect import OfferedTool, mapping
from coilclaw.cli.model_server.script import Action, CallTool, RunShell, ScriptedWrite
from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from coilclaw.kernel import Json

SHELL_TOOLS: Final = (
    "exec_command",
    "shell_command",
    "shell",
    "local_shell",
    "container.exec",
    "bash",
    "Bash",
    "run_shell_command",
    "run_command",
    "execute_command",
)
COMMAND_KEYS: Final = ("cmd", "command", "commands", "argv", "script")

PATCH_TOOL: Final = "apply_patch"
PATCH_KEYS: Final = ("input", "patchText", "patch")
WRITE_TOOLS: Final = (
    "write",
    "Write",
    "write_file",
    "file_write",
    "create_file",
    "str_replace_based_edit_tool",
    "str_replace_editor",
)
PATH_KEYS: Final = ("filePath", "file_path", "path", "absolute_path", "filename")
CONTENT_KEYS: Final = ("content", "contents", "file_text", "text")

_FILLER: Final = "scripted"
_MAX_NAMED: Final = 40


def make_call(action: Action, tools: Sequence[OfferedTool]) -> CallTool:
    """Turn an action of the script into a call; raise ``UsageError`` if no tool fits."""
    match action:
        case CallTool():
            return _call_by_name(action, tools)
        case RunShell(command):
            return _call_shell(command, tools, "a shell")
        case ScriptedWrite():
            return _call_write(action, tools)
        case _:
            assert_never(action)


def _call_by_name(action: CallTool, tools: Sequence[OfferedTool]) -> CallTool:
    if action.input is not None:
        tool = _find_tool((action.name,), tools)
        if tool is None or tool.kind == "freeform":
            return action
        key = tool.key(PATCH_KEYS) or next(iter(tool.properties), "input")
        return CallTool(tool.name, {key: action.input}, id=action.id)
    for tool in tools:
        if tool.namespace is not None and f"{tool.namespace}/{tool.name}" == action.name:
            return replace(action, name=tool.name, namespace=tool.namespace)
    return action


def _call_shell(command: str, tools: Sequence[OfferedTool], wanted: str) -> CallTool:
    tool = _find_tool(SHELL_TOOLS, tools)
    if tool is None:
        offered = ", ".join([tool.name for tool in tools][:_MAX_NAMED]) or "nothing"
        raise UsageError(
            f"the script needs {wanted} tool, but the request offers only: {offered}",
            rule="script.tool",
        )
    argv = ("bash", "-lc", command)
    if tool.kind == "local_shell":
        return CallTool(tool.name, argv=argv)
    key = tool.key(COMMAND_KEYS) or "command"
    is_list = mapping(tool.properties.get(key)).get("type") == "array"
    return _call_function(tool, {key: list(argv) if is_list else command})


def _call_write(action: ScriptedWrite, tools: Sequence[OfferedTool]) -> CallTool:
    patch_tool = _find_tool((PATCH_TOOL,), tools)
    if patch_tool is not None:
        patch = make_patch(action)
        if patch_tool.kind == "freeform":
            return CallTool(patch_tool.name, input=patch)
        return _call_function(patch_tool, {patch_tool.key(PATCH_KEYS) or "input": patch})
    tool = _find_tool(WRITE_TOOLS, tools)
    if tool is None:
        return _call_shell(_format_write(action), tools, "a file-writing or shell")
    path, content = tool.key(PATH_KEYS) or "path", tool.key(CONTENT_KEYS) or "content"
    arguments: dict[str, Json] = {path: action.path, content: action.content}
    if "command" in tool.properties:
        arguments["command"] = "create"
    return _call_function(tool, arguments)


def make_patch(action: ScriptedWrite) -> str:
    """Return a patch that adds the file; its last line ends in a line feed."""
    lines = action.content.removesuffix("\n").split("\n") if action.content else []
    body = "".join(f"+{line}\n" for line in lines)
    return f"*** Begin Patch\n*** Add File: {action.path}\n{body}*** End Patch\n"


def _format_write(action: ScriptedWrite) -> str:
    """Return a command that writes the file exactly."""
    parent = posixpath.dirname(action.path)
    made = f"mkdir -p -- {shlex.quote(parent)} && " if parent else ""
    return f"{made}printf %s {shlex.quote(action.content)} > {shlex.quote(action.path)}"


def _find_tool(names: Iterable[str], tools: Sequence[OfferedTool]) -> OfferedTool | None:
    by_name = {tool.name: tool for tool in reversed(tools) if tool.namespace is None}
    return next((by_name[name] for name in names if name in by_name), None)


def _call_function(tool: OfferedTool, arguments: dict[str, Json]) -> CallTool:
    """Return the call, with a filler for every other argument that the tool requires."""
    required = tool.schema.get("required")
    for name in required if isinstance(required, list) else []:
        if isinstance(name, str) and name not in arguments:
            arguments[name] = _make_filler(mapping(tool.properties.get(name)))
    return CallTool(tool.name, arguments)


def _make_filler(schema: Mapping[str, object]) -> Json:
    allowed = schema.get("enum")
    if isinstance(allowed, list) and allowed and isinstance(allowed[0], str):
        return allowed[0]
    kind = str(schema.get("type")).lower()
    fillers: dict[str, Json] = {
        "boolean": False,
        "integer": 1,
        "number": 1,
        "array": [],
        "object": {},
        "null": None,
    }
    return fillers.get(kind, _FILLER)
