"""What Codex reports as an item, and what its model called, as ``Part``."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.agents.codexcalls import FORBIDDEN, SHELL_TOOL, Calls, text_of
from coilclaw.domain import freeform
from coilclaw.domain.messages import Usage
from coilclaw.domain.parts import Part
from coilclaw.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from coilclaw.domain.messages import Json

DECLINED: Final = "declined"
_CHANGES: Final = ("add", "delete", "update")
_NOT_WORK: Final = frozenset({"userMessage", "hookPrompt", "contextCompaction"})
_MAX_ITEMS: Final = 100_000


def items_of(value: Json) -> list[dict[str, Json]]:
    """Return the objects of a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


@dataclass(slots=True)
class Items:
    """Makes parts of items, and remembers what has begun."""

    directory: Path
    shell_denied: bool
    changes: dict[str, list[dict[str, Json]]] = field(default_factory=dict)
    """What each file change that has begun would do, by its item."""
    text: str = ""
    """What the agent said last."""
    _seen: set[str] = field(default_factory=set)
    _open: dict[str, tuple[dict[str, Json], str]] = field(default_factory=dict)
    _calls: Calls = field(init=False)

    def __post_init__(self) -> None:
        self._calls = Calls(self.shell_denied)

    def began(self, item: dict[str, Json], raw: str) -> None:
        """Remember an item that has begun."""
        name = text_of(item.get("id"))
        if len(self._seen) >= _MAX_ITEMS:
            raise UsageError(f"more than {_MAX_ITEMS:,} items", rule="codex.items")
        self._seen.add(name)
        self._open[name] = (item, raw)
        if item.get("type") == "fileChange":
            self.changes[name] = items_of(item.get("changes"))

    def completed(self, item: dict[str, Json], raw: str) -> Part | None:
        """Return the part that an item is; ``None`` if it is nobody's work."""
        kind, name = text_of(item.get("type")), text_of(item.get("id"))
        self._seen.add(name)
        self._open.pop(name, None)
        self.changes.pop(name, None)
        if kind in _NOT_WORK:
            return None
        if kind == "agentMessage":
            self.text = text_of(item.get("text"))
            return Part("text", text=self.text, item_type=kind, raw=raw)
        if kind == "reasoning":
            thought = item.get("summary") or item.get("content")
            lines = [text_of(line) for line in thought] if isinstance(thought, list) else []
            return Part("reasoning", text="\n".join(lines), item_type=kind, raw=raw)
        if kind == "commandExecution":
            return self._command(item, name, raw)
        if kind == "fileChange":
            return self._change(item, name, raw)
        return _other(item, kind, name, raw)

    def called(self, item: dict[str, Json], raw: str) -> Part | None:
        """Return the part that shows a call which became no item, such as one that was refused.

        Codex reports the model's call and its result for itself, beside the items.
        """
        return self._calls.heard(item, raw, self._seen)

    def unfinished(self) -> list[Part]:
        """Return a part for each command that has not come to its end with the turn."""
        left = [pair for pair in self._open.values() if pair[0].get("type") == "commandExecution"]
        return [part for item, raw in left if (part := self.completed(item, raw)) is not None]

    def _command(self, item: Mapping[str, Json], name: str, raw: str) -> Part:
        code = item.get("exitCode")
        status = text_of(item.get("status"))
        said = status if status in (DECLINED, "inProgress") else ""
        return Part(
            "tool",
            text=FORBIDDEN if self.shell_denied else said,
            tool=SHELL_TOOL,
            call_id=name,
            input=freeform.text({"command": item.get("command"), "cwd": item.get("cwd")}),
            output=text_of(item.get("aggregatedOutput")),
            exit_code=code if isinstance(code, int) and not isinstance(code, bool) else None,
            item_type="commandExecution",
            raw=raw,
        )

    def _change(self, item: Mapping[str, Json], name: str, raw: str) -> Part:
        changes = items_of(item.get("changes"))
        status = text_of(item.get("status"))
        return Part(
            "patch",
            text="" if status == "completed" else status,
            tool="apply_patch",
            call_id=name,
            output="\n".join(diff_lines(changes)),
            files=tuple(dict.fromkeys(relative(p, self.directory) for p in paths_of(changes))),
            item_type="fileChange",
            raw=raw,
        )


def _other(item: dict[str, Json], kind: str, name: str, raw: str) -> Part:
    if kind == "plan":
        return Part("text", text=text_of(item.get("text")), item_type=kind, raw=raw)
    if kind == "mcpToolCall":
        return Part(
            "tool",
            tool=f"{text_of(item.get('server'))}/{text_of(item.get('tool'))}",
            call_id=name,
            input=freeform.text(item.get("arguments")),
            text="failed" if item.get("error") else "",
            output=said_by(item.get("error") or item.get("result")),
            item_type=kind,
            raw=raw,
        )
    return Part("tool", tool=kind, call_id=name, input=freeform.text(item), item_type=kind, raw=raw)


def said_by(result: Json) -> str:
    """Return what a tool said: its texts, if it said nothing else."""
    if isinstance(result, dict):
        content = items_of(result.get("content"))
        if content and all(one.get("type") == "text" for one in content):
            return "\n".join(text_of(one.get("text")) for one in content)
        if isinstance(result.get("message"), str):
            return text_of(result["message"])
    return "" if result is None else freeform.text(result)


def paths_of(changes: Iterable[Mapping[str, Json]]) -> list[str]:
    """Return every path that changes name; a moved file has two."""
    found = []
    for change in changes:
        kind = change.get("kind")
        moved = text_of(kind.get("move_path")) if isinstance(kind, dict) else ""
        found += [path for path in (text_of(change.get("path")), moved) if path]
    return found


def diff_lines(changes: Iterable[Mapping[str, Json]]) -> list[str]:
    """Return what changes do, line by line; what is indented is the content of files."""
    lines = []
    for change in changes:
        kind = change.get("kind")
        word = text_of(kind.get("type")) if isinstance(kind, dict) else text_of(kind)
        moved = text_of(kind.get("move_path")) if isinstance(kind, dict) else ""
        head = f"{word if word in _CHANGES else 'change'} {_shown(text_of(change.get('path')))}"
        lines.append(f"{head} -> {_shown(moved)}" if moved else head)
        lines += [f"  {line}" for line in text_of(change.get("diff")).split("\n")]
    return lines


def _shown(path: str) -> str:
    return path if path.isprintable() else freeform.text(path)


def relative(path: str, directory: Path) -> str:
    """Return a path relative to the directory if it lies in it."""
    whole = os.path.normpath(os.path.join(directory, path))
    return os.path.relpath(whole, directory) if inside(whole, directory) else whole


def inside(path: str, directory: Path) -> bool:
    """Return whether a path lies below the directory, as far as its words go."""
    whole = os.path.normpath(os.path.join(directory, path))
    return whole.startswith(f"{str(directory).rstrip('/')}/")


def usage_of(counted: Json) -> Usage | None:
    """Return the tokens of a breakdown."""
    if not isinstance(counted, dict):
        return None
    read, written = counted.get("inputTokens"), counted.get("outputTokens")
    if not isinstance(read, int) or not isinstance(written, int):
        return None
    return Usage(read, written)
