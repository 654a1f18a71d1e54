"""What Codex reports, as parts: its items, and the calls of the model that became no item.

The app-server and ``codex exec`` report the same items, the one in ``camelCase`` and the other in
``snake_case``.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import Part, Usage, UsageError, canonical_json
from coilclaw.runners.agent_answer import (
    DECLINED,
    FORBIDDEN,
    SHELL_TOOL,
    count_of,
    items_of,
    object_of,
    relative,
    show_path,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping
    from pathlib import Path

    from coilclaw.kernel import Json

MAX_ITEMS: Final = 100_000
MAX_OPEN_CALLS: Final = 1000
SHELL_CALLS: Final = frozenset(
    {"exec_command", "shell", "shell_command", "local_shell", "local_shell_call", "write_stdin"}
)
"""What the model calls its shell by."""
_COMMANDS: Final = ("commandExecution", "command_execution")
_MESSAGES: Final = ("agentMessage", "agent_message")
_NOT_WORK: Final = frozenset(
    {"userMessage", "hookPrompt", "contextCompaction", "error", "todo_list"}
)
"""Also warnings, and a list that is told anew with each change."""
_CALLS: Final = frozenset({"function_call", "custom_tool_call", "local_shell_call"})
_OUTPUTS: Final = frozenset({"function_call_output", "custom_tool_call_output"})
_HEAD_END: Final = "\nOutput:\n"
"""Before it stands what Codex says of a command, and after it what the command said."""
_EXIT_CODE: Final = re.compile(r"^Process exited with code (-?\d{1,9})$", re.MULTILINE)
_RUNNING: Final = re.compile(r"^Process running with session ID \d{1,20}$", re.MULTILINE)


@dataclass(slots=True)
class Calls:
    """Pairs calls of the model with their results."""

    shell_denied: bool
    _open: dict[str, tuple[str, str]] = field(default_factory=dict)

    def heard(self, item: Mapping[str, Json], raw: str, told: Container[str]) -> Part | None:
        """Return the part that shows a call with its result, unless it was ``told`` as an item."""
        kind, call = text_of(item.get("type")), text_of(item.get("call_id"))
        if kind in _CALLS and len(self._open) < MAX_OPEN_CALLS:
            space, name = text_of(item.get("namespace")), text_of(item.get("name"))
            self._open[call] = (f"{space}/{name}" if space else name or kind, _arguments(item))
        if kind not in _OUTPUTS:
            return None
        name, asked = self._open.pop(call, ("", ""))
        if not name or call in told:
            return None
        shell, code, said = name in SHELL_CALLS, None, item.get("output")
        output = said if isinstance(said, str) else canonical_json.render_json(said)
        head, end, rest = output.partition(_HEAD_END)
        if shell and end:
            if _RUNNING.search(head) and name != "write_stdin":
                return None  # It is still running, and becomes an item when it ends.
            if found := _EXIT_CODE.search(head):
                code, output = int(found[1]), rest
        return Part(
            "tool",
            text=FORBIDDEN if self.shell_denied and shell else "",
            tool=SHELL_TOOL if shell else name,
            call_id=call,
            input=asked,
            output=output,
            exit_code=code,
            item_type=kind,
            raw=raw,
        )


@dataclass(slots=True)
class Items:
    """Makes parts of items, and remembers what has begun."""

    directory: Path
    shell_denied: bool
    changes: dict[str, list[dict[str, Json]]] = field(default_factory=dict)
    """What each file change that has begun would do, by its item."""
    text: str = ""
    """What the agent said last."""
    warning: str = ""
    """The last one; what is not a failure may explain one."""
    _seen: set[str] = field(default_factory=set)
    _open: dict[str, tuple[dict[str, Json], str]] = field(default_factory=dict)
    _calls: Calls = field(init=False)

    def __post_init__(self) -> None:
        self._calls = Calls(self.shell_denied)

    def began(self, item: dict[str, Json], raw: str) -> None:
        """Remember an item that has begun."""
        name = text_of(item.get("id"))
        if len(self._seen) >= MAX_ITEMS:
            raise UsageError(f"more than {MAX_ITEMS:,} items", rule="codex.items")
        self._seen.add(name)
        self._open[name] = (item, raw)
        if item.get("type") == "fileChange":
            self.changes[name] = items_of(item.get("changes"))

    def read_completed(self, item: dict[str, Json], raw: str) -> Part | None:
        """Return the part that an item is; ``None`` for one that is not work of the agent."""
        kind, name = text_of(item.get("type")), text_of(item.get("id"))
        self._seen.add(name)
        self._open.pop(name, None)
        self.changes.pop(name, None)
        if kind in _NOT_WORK:
            self.warning = text_of(item.get("message"))
            return None
        if kind in (*_MESSAGES, "plan"):
            said = text_of(item.get("text"))
            self.text = said if kind in _MESSAGES else self.text
            return Part("text", text=said, item_type=kind, raw=raw)
        if kind == "reasoning":
            thought = item.get("summary") or item.get("content")
            lines = [text_of(line) for line in thought] if isinstance(thought, list) else []
            said = text_of(item.get("text")) or "\n".join(lines)
            return Part("reasoning", text=said, item_type=kind, raw=raw)
        if kind in _COMMANDS:
            return self._command(item, kind, name, raw)
        if kind in ("fileChange", "file_change"):
            return self._change(item, kind, name, raw)
        return _tool_call(item, kind, name, raw)

    def read_call(self, item: dict[str, Json], raw: str) -> Part | None:
        """Return the part that shows a call which became no item, such as one that was refused.

        Codex reports the model's call and its result for itself, beside the items.
        """
        return self._calls.heard(item, raw, self._seen)

    def list_unfinished(self) -> list[Part]:
        """Return a part for each command that is still running when the turn ends."""
        left = [pair for pair in self._open.values() if pair[0].get("type") in _COMMANDS]
        return [part for item, raw in left if (part := self.read_completed(item, raw)) is not None]

    def _command(self, item: Mapping[str, Json], kind: str, name: str, raw: str) -> Part:
        status = text_of(item.get("status"))
        said = status if status in (DECLINED, "inProgress", "in_progress") else ""
        named = ("command", "cwd") if kind == _COMMANDS[0] else ("command",)
        return Part(
            "tool",
            text=FORBIDDEN if self.shell_denied else said,
            tool=SHELL_TOOL,
            call_id=name,
            input=canonical_json.render_json({key: item.get(key) for key in named}),
            output=text_of(item.get("aggregatedOutput", item.get("aggregated_output"))),
            exit_code=count_of(item.get("exitCode", item.get("exit_code"))),
            item_type=kind,
            raw=raw,
        )

    def _change(self, item: Mapping[str, Json], kind: str, name: str, raw: str) -> Part:
        changes, status = items_of(item.get("changes")), text_of(item.get("status"))
        # ``codex exec`` does not report the contents.
        lines = diff_lines(changes) if kind == "fileChange" else map(_headline, changes)
        return Part(
            "patch",
            text="" if status == "completed" else status,
            tool="apply_patch",
            call_id=name,
            output="\n".join(lines),
            files=tuple(dict.fromkeys(relative(p, self.directory) for p in paths_of(changes))),
            item_type=kind,
            raw=raw,
        )


def _tool_call(item: dict[str, Json], kind: str, name: str, raw: str) -> Part:
    if kind not in ("mcpToolCall", "mcp_tool_call"):
        given = canonical_json.render_json(item)
        return Part("tool", tool=kind, call_id=name, input=given, item_type=kind, raw=raw)
    return Part(
        "tool",
        text="failed" if item.get("error") else "",
        tool=f"{text_of(item.get('server'))}/{text_of(item.get('tool'))}",
        call_id=name,
        input=canonical_json.render_json(item.get("arguments")),
        output=_result_text(item.get("error") or item.get("result")),
        item_type=kind,
        raw=raw,
    )


def _result_text(result: Json) -> str:
    """Return the result of a tool as text: its texts, if it holds nothing else."""
    content = items_of(object_of(result).get("content"))
    if content and all(one.get("type") == "text" for one in content):
        return "\n".join(text_of(one.get("text")) for one in content)
    message = object_of(result).get("message")
    if isinstance(message, str):
        return message
    return "" if result is None else canonical_json.render_json(result)


def _arguments(item: Mapping[str, Json]) -> str:
    """Return the arguments of a call; those of a freeform tool are one text."""
    given = item.get("arguments")
    if not isinstance(given, str):
        return canonical_json.render_json(item.get("input", item.get("action")))
    with suppress(ValueError, RecursionError):
        return canonical_json.render_json(json.loads(given))
    return canonical_json.render_json({"arguments": given})


def paths_of(changes: Iterable[Mapping[str, Json]]) -> list[str]:
    """Return every path that changes name; a moved file has two."""
    named = [
        path
        for change in changes
        for path in (change.get("path"), object_of(change.get("kind")).get("move_path"))
    ]
    return [path for path in named if isinstance(path, str) and path]


def diff_lines(changes: Iterable[Mapping[str, Json]]) -> list[str]:
    """Return what changes do, line by line; what is indented is the content of files."""
    lines = []
    for change in changes:
        lines.append(_headline(change))
        lines += [f"  {line}" for line in text_of(change.get("diff")).split("\n")]
    return lines


def _headline(change: Mapping[str, Json]) -> str:
    kind = change.get("kind")
    word, moved = object_of(kind).get("type", kind), text_of(object_of(kind).get("move_path"))
    verb = word if word in ("add", "delete", "update") else "change"
    head = f"{verb} {show_path(text_of(change.get('path')))}"
    return f"{head} -> {show_path(moved)}" if moved else head


def usage_of(counted: Json) -> Usage | None:
    """Return the tokens of a breakdown; ``None`` if it is none."""
    fields = object_of(counted)
    read = fields.get("inputTokens", fields.get("input_tokens"))
    written = fields.get("outputTokens", fields.get("output_tokens"))
    if not isinstance(read, int) or not isinstance(written, int):
        return None
    return Usage(read, written)
