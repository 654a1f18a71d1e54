"""What ``codex exec --json`` prints, as ``Part``: each item when it is complete."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.agents.codexcalls import FORBIDDEN, SHELL_TOOL, text_of
from coilclaw.agents.codexitems import items_of, relative, said_by
from coilclaw.domain import freeform
from coilclaw.domain.messages import Usage
from coilclaw.domain.parts import Part

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from coilclaw.domain.messages import Json

MAX_OPEN: Final = 1000
_TEXTS: Final = {"agent_message": "text", "reasoning": "reasoning"}
_NOT_WORK: Final = frozenset({"error", "todo_list"})
"""Warnings, and a list that is told anew with each change."""


@dataclass(slots=True)
class ExecItems:
    """Makes parts of items, and remembers what has begun."""

    directory: Path
    shell_denied: bool
    text: str = ""
    """What the agent said last."""
    warning: str = ""
    """The last one; what is no failure may explain one."""
    _open: dict[str, tuple[dict[str, Json], str]] = field(default_factory=dict)

    def began(self, item: dict[str, Json], raw: str) -> None:
        """Remember an item that has begun."""
        if len(self._open) < MAX_OPEN:
            self._open[text_of(item.get("id"))] = (item, raw)

    def completed(self, item: Mapping[str, Json], raw: str) -> Part | None:
        """Return the part that an item is; ``None`` if it is nobody's work."""
        kind, name = text_of(item.get("type")), text_of(item.get("id"))
        self._open.pop(name, None)
        if kind in _NOT_WORK:
            self.warning = text_of(item.get("message"))
            return None
        if kind in _TEXTS:
            said = text_of(item.get("text"))
            if kind == "reasoning":
                return Part("reasoning", text=said, item_type=kind, raw=raw)
            self.text = said
            return Part("text", text=said, item_type=kind, raw=raw)
        if kind == "command_execution":
            return self._command(item, name, raw)
        if kind == "file_change":
            return self._change(item, name, raw)
        return _other(item, kind, name, raw)

    def unfinished(self) -> list[Part]:
        """Return a part for each command that has not come to its end with the turn."""
        left = [pair for pair in self._open.values() if pair[0].get("type") == "command_execution"]
        return [part for item, raw in left if (part := self.completed(item, raw)) is not None]

    def _command(self, item: Mapping[str, Json], name: str, raw: str) -> Part:
        code, status = item.get("exit_code"), text_of(item.get("status"))
        said = status if status not in ("completed", "failed") else ""
        return Part(
            "tool",
            text=FORBIDDEN if self.shell_denied else said,
            tool=SHELL_TOOL,
            call_id=name,
            input=freeform.text({"command": item.get("command")}),
            output=text_of(item.get("aggregated_output")),
            exit_code=code if isinstance(code, int) and not isinstance(code, bool) else None,
            item_type="command_execution",
            raw=raw,
        )

    def _change(self, item: Mapping[str, Json], name: str, raw: str) -> Part:
        changes, status = items_of(item.get("changes")), text_of(item.get("status"))
        paths = [text_of(change.get("path")) for change in changes]
        kinds = [text_of(change.get("kind")) for change in changes]
        lines = [f"{kind} {path}" for kind, path in zip(kinds, paths, strict=True)]
        return Part(
            "patch",
            text="" if status == "completed" else status,
            tool="apply_patch",
            call_id=name,
            output="\n".join(lines),
            files=tuple(dict.fromkeys(relative(path, self.directory) for path in paths if path)),
            item_type="file_change",
            raw=raw,
        )


def _other(item: Mapping[str, Json], kind: str, name: str, raw: str) -> Part:
    if kind == "mcp_tool_call":
        return Part(
            "tool",
            text="failed" if item.get("error") else "",
            tool=f"{text_of(item.get('server'))}/{text_of(item.get('tool'))}",
            call_id=name,
            input=freeform.text(item.get("arguments")),
            output=said_by(item.get("error") or item.get("result")),
            item_type=kind,
            raw=raw,
        )
    given = freeform.text(dict(item))
    return Part("tool", tool=kind, call_id=name, input=given, item_type=kind, raw=raw)


def usage_of(counted: Json) -> Usage | None:
    """Return the tokens that the thread has taken so far."""
    if not isinstance(counted, dict):
        return None
    read, written = counted.get("input_tokens"), counted.get("output_tokens")
    if not isinstance(read, int) or not isinstance(written, int):
        return None
    return Usage(read, written)
