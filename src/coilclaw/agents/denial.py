"""``Denial``: what an agent wanted and did not get, as the agent's parts show it.

The guard and the permissions of a contract say what they refuse. What the operating system's
sandbox refuses only shows in the output of a command, so it is told as a likelihood.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.agents.codexcalls import FORBIDDEN
from coilclaw.agents.codexitems import DECLINED
from coilclaw.agents.process import ERROR_OUTPUT
from coilclaw.agents.shellpolicy import REFUSED_EXIT_CODE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.domain.messages import Json
    from coilclaw.domain.parts import Part

TOOL_RULE: Final = "tool.denied"
SANDBOX_RULE: Final = "sandbox.denied"
MAX_SANDBOX_LINES: Final = 3
"""Lines of one output that are told as refusals of the sandbox."""
_COMMAND_KEYS: Final = ("command", "cmd", "argv", "action")
_BY_RULE: Final = re.compile(r"denied by (?P<rule>[\w.]+)(?::| =) (?P<reason>.*)")
_CODEX_REFUSAL: Final = re.compile(
    r"rejected by user|\bRejected\(|denied by (?:the )?sandbox|sandbox denied|failed in sandbox"
    r"|approval policy is Never",
    re.IGNORECASE,
)
"""How Codex words that a call was refused, where it makes no item of it."""
_SANDBOX_REFUSAL: Final = re.compile(
    r"read-only file system|operation not permitted|permission denied|network is unreachable"
    r"|temporary failure in name resolution|could not resolve host|name or service not known",
    re.IGNORECASE,
)
"""How programs word the errors that a sandbox answers with."""


@dataclass(frozen=True, slots=True)
class Denial:
    """One thing that an agent asked for or tried, and why it did not happen."""

    what: str
    """The command, change or tool."""
    reason: str
    denied_by: str = ""
    """The rule of the guard, of the permissions or of the approval, where one is known."""
    rule: str = TOOL_RULE
    call_id: str = ""
    """The agent's own name of the call, so that a part that shows it again is not told twice."""


def find_denials(part: Part) -> Iterator[Denial]:
    """Yield what a part shows to have been refused; its texts are bounded by the caller."""
    if part.item_type == ERROR_OUTPUT:
        yield from _find_sandbox_refusals("the program", part.text, part.call_id)
        return
    if part.kind not in {"tool", "patch", "tool_result"}:
        return
    what = describe_call(part)
    if part.exit_code == REFUSED_EXIT_CODE and part.output.startswith("denied"):
        line = part.output.partition("\n")[0]
        found = _BY_RULE.match(line)
        by, reason = (found["rule"], found["reason"]) if found else ("", line)
        yield Denial(what, reason, by, call_id=part.call_id)
    elif part.text == FORBIDDEN:
        yield Denial(what, FORBIDDEN.partition(": ")[2], "shell_deny", call_id=part.call_id)
    elif part.text == DECLINED:
        yield Denial(what, "the request was declined", DECLINED, call_id=part.call_id)
    elif part.exit_code is None and _CODEX_REFUSAL.search(part.output):
        lines = [each for each in part.output.splitlines() if _CODEX_REFUSAL.search(each)]
        yield Denial(what, lines[0].strip(), "codex", call_id=part.call_id)
    elif part.exit_code not in {None, 0} and read_command(part):
        yield from _find_sandbox_refusals(what, part.output, part.call_id)


def _find_sandbox_refusals(what: str, output: str, call_id: str) -> Iterator[Denial]:
    lines = (line.strip() for line in output.splitlines())
    told = dict.fromkeys(line for line in lines if _SANDBOX_REFUSAL.search(line))
    for line in list(told)[:MAX_SANDBOX_LINES]:
        reason = f"the sandbox seems to have refused it: {line}"
        yield Denial(what, reason, rule=SANDBOX_RULE, call_id=call_id)


def describe_call(part: Part) -> str:
    """Name what a part does: its command, else its tool with the files or the input."""
    command = read_command(part)
    if command:
        return command
    given = _read_input(part)
    named = given.get("path", given.get("url")) if isinstance(given, dict) else None
    about = ", ".join(part.files) or (
        named if isinstance(named, str) else " ".join(part.input.split())
    )
    tool = part.tool or part.kind
    return f"{tool} {about}".strip() if about not in {"", "{}"} else tool


def read_command(part: Part) -> str:
    """Return the command line that a part ran, on one line; empty where it ran none."""
    if part.kind not in {"tool", "tool_use"}:
        return ""
    given = _read_input(part)
    while isinstance(given, dict):
        given = next((given[key] for key in _COMMAND_KEYS if given.get(key)), None)
    if isinstance(given, list):
        return shlex.join(str(word) for word in given)
    return " ".join(given.split()) if isinstance(given, str) else ""


def _read_input(part: Part) -> Json:
    try:
        value: Json = json.loads(part.input) if part.input else None
    except (ValueError, RecursionError):
        return None
    return value
