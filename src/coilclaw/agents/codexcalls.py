"""``Calls``: what Codex's model called, with what came of it, as ``Part``.

Codex tells of most calls as items. Of some it does not: one that was refused, one of a tool that
there is not, and a command that failed with words that sound like a sandbox.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.domain import freeform
from coilclaw.domain.parts import Part

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from coilclaw.domain.messages import Json

SHELL_TOOL: Final = "shell"
SHELL_CALLS: Final = frozenset(
    {"exec_command", "shell", "shell_command", "local_shell", "local_shell_call", "write_stdin"}
)
"""What the model calls its shell by."""

FORBIDDEN: Final = "policy_violation: the contract allows no shell"
"""The text of a part that shows a shell request where the contract has ``deny``."""

MAX_OPEN: Final = 1000
_CALLS: Final = frozenset({"function_call", "custom_tool_call", "local_shell_call"})
_OUTPUTS: Final = frozenset({"function_call_output", "custom_tool_call_output"})
_HEAD_END: Final = "\nOutput:\n"
"""Before it stands what Codex says of a command, and after it what the command said."""
_EXIT_CODE: Final = re.compile(r"^Process exited with code (-?\d{1,9})$", re.MULTILINE)
_RUNNING: Final = re.compile(r"^Process running with session ID \d{1,20}$", re.MULTILINE)


def text_of(value: Json) -> str:
    """Return a value of the protocol that should be a text; anything else is none."""
    return value if isinstance(value, str) else ""


@dataclass(slots=True)
class Calls:
    """Brings calls and their results together."""

    shell_denied: bool
    _open: dict[str, tuple[str, str]] = field(default_factory=dict)

    def heard(self, item: Mapping[str, Json], raw: str, told: Container[str]) -> Part | None:
        """Return the part that shows a call with its result, unless it was ``told`` as an item."""
        kind, call = text_of(item.get("type")), text_of(item.get("call_id"))
        if kind in _CALLS:
            if len(self._open) < MAX_OPEN:
                self._open[call] = (_name(item) or kind, _arguments(item))
            return None
        if kind not in _OUTPUTS:
            return None
        name, asked = self._open.pop(call, ("", ""))
        if not name or call in told:
            return None
        return self._part(name, asked, item, raw)

    def _part(self, name: str, asked: str, item: Mapping[str, Json], raw: str) -> Part | None:
        shell = name in SHELL_CALLS
        output, code = _said(item.get("output")), None
        if shell:
            head, end, said = output.partition(_HEAD_END)
            if end and _RUNNING.search(head) and name != "write_stdin":
                return None  # It goes on, and becomes an item when it has come to its end.
            found = _EXIT_CODE.search(head) if end else None
            if found:
                code, output = int(found[1]), said
        return Part(
            "tool",
            text=FORBIDDEN if self.shell_denied and shell else "",
            tool=SHELL_TOOL if shell else name,
            call_id=text_of(item.get("call_id")),
            input=asked,
            output=output,
            exit_code=code,
            item_type=text_of(item.get("type")),
            raw=raw,
        )


def _name(item: Mapping[str, Json]) -> str:
    space, name = text_of(item.get("namespace")), text_of(item.get("name"))
    return f"{space}/{name}" if space else name


def _arguments(item: Mapping[str, Json]) -> str:
    """Return the arguments of a call; those of a freeform tool are one text."""
    given = item.get("arguments")
    if isinstance(given, str):
        with suppress(ValueError, RecursionError):
            return freeform.text(json.loads(given))
        return freeform.text({"arguments": given})
    return freeform.text(item.get("input", item.get("action")))


def _said(output: Json) -> str:
    return output if isinstance(output, str) else freeform.text(output)
