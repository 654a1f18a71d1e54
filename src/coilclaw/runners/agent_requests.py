"""Requests of agents: what an agent asks before it acts, judged by its assignment.

Codex and ACP agents ask in words of their own; ``CodexRequests`` and ``AcpRequests`` read them, and
``_Requests`` holds what the contract says about each.
"""

from __future__ import annotations

import json
import logging
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from coilclaw.kernel import canonical_json
from coilclaw.runners import contract_policy
from coilclaw.runners.acp import updates as acpupdates
from coilclaw.runners.agent_answer import DECLINED, FORBIDDEN, inside, object_of, text_of
from coilclaw.runners.codex import items as codexitems
from coilclaw.runners.contract_policy import REFUSED_EXIT_CODE
from coilclaw.runners.process import ERROR_OUTPUT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from coilclaw.kernel import Json, Part
    from coilclaw.runners.acp.updates import AcpToolCall, Updates
    from coilclaw.runners.codex.items import Items
    from coilclaw.runners.contract_policy import RequestKind
    from coilclaw.runners.runner import Assignment, Means
    from coilclaw.runners.test_tool import TestTool


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


MAX_TITLE: Final = 200
REASONS: Final[Mapping[str, str]] = {
    "shell": "the contract allows no such command",
    "shell_deny": "the contract allows no shell",
    "shell_never": "the contract allows no command beyond the sandbox",
    "network": "the contract allows no network",
    "read_only": "the contract allows no writing",
    "outside": "it reaches beyond the worktree",
    "not_approved": "the request was not approved",
    "unknown": "it is not known what the request would do",
}
"""Why a request is refused, by the last word of its rule, where nothing says it more exactly."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Requests:
    """Answers the requests of one performance."""

    family: ClassVar[str]
    """What the rules begin with."""

    assignment: Assignment
    means: Means

    def _ask(
        self,
        kind: RequestKind,
        title: str,
        detail: Sequence[str],
        call_id: str,
        *,
        what: str = "",
        reason: str = "",
    ) -> bool:
        """Ask the user; a request that is not granted is told as a denial of ``what``."""
        task = self.assignment.task_id
        asked = contract_policy.request(task, kind, title[:MAX_TITLE], tuple(detail), reason)
        granted = self.means.approve(asked).granted
        return granted or self._deny(kind, "not_approved", what or title, call_id)

    def _deny(
        self, kind: RequestKind, word: str, what: str, call_id: str, *, reason: str = ""
    ) -> bool:
        rule = f"{self.family}.{word}"
        fields = {"task_id": self.assignment.task_id, "kind": kind, "rule": rule}
        _log.warning(
            "the agent asked for what its contract denies: %s",
            kind,
            extra={
                "event": "agent_request_denied",
                "fields": {**fields, "title": what[:MAX_TITLE]},
            },
        )
        self.means.on_denied(Denial(what, reason or REASONS[word], rule, call_id=call_id))
        return False

    def _refuse_change(self, paths: Sequence[str]) -> str:
        """Return why the contract does not cover a change of these paths, if so."""
        if not paths:
            return "unknown"
        if self.assignment.filesystem != "workspace-write":
            return "read_only"
        lies_inside = all(inside(path, self.assignment.workspace) for path in paths)
        return "" if lies_inside else "outside"


@dataclass(frozen=True, slots=True)
class CodexRequests(_Requests):
    """The requests of Codex over its app-server."""

    family = "codex"

    items: Items

    def answer(self, method: str, params: Mapping[str, Json]) -> dict[str, Json] | None:
        """Return the result to send; ``None`` for what is not answered here."""
        name = text_of(params.get("itemId"))
        match method:
            case "item/commandExecution/requestApproval":
                accepted = self._command(params, name)
            case "item/fileChange/requestApproval":
                accepted = self._change(params, name)
            case "item/permissions/requestApproval":
                asked = object_of(params.get("permissions"))
                granted = asked if self._permission(params, asked, name) else {}
                return {"permissions": granted, "scope": "turn"}
            case "mcpServer/elicitation/request":
                server = text_of(params.get("serverName"))
                self._deny("permission", "unknown", f"a question of {server}", name)
                return {"action": "decline"}
            case _:
                return None
        return {"decision": "accept" if accepted else "decline"}

    def _command(self, params: Mapping[str, Json], name: str) -> bool:
        command, shell = text_of(params.get("command")), self.assignment.shell
        if shell in ("deny", "never"):
            return self._deny("command", f"shell_{shell}", command, name)
        network = params.get("networkApprovalContext")
        if network is not None and self.assignment.network == "deny":
            return self._deny("command", "network", command, name)
        more = ("kind", "stdin", "networkApprovalContext", "additionalPermissions")
        told = {key: value for key in more if (value := params.get(key)) not in (None, "command")}
        if not command and not told:
            return self._deny("command", "unknown", command, name)
        detail = [f"directory: {canonical_json.render_json(params.get('cwd'))}"]
        detail += [f"{key}: {canonical_json.render_json(value)}" for key, value in told.items()]
        # Last, for it may have many lines, and none of them can pass for one of the others.
        detail += f"command: {command}".split("\n")
        reason = text_of(params.get("reason"))
        return self._ask("command", command or "a command", detail, name, reason=reason)

    def _change(self, params: Mapping[str, Json], name: str) -> bool:
        changes = self.items.changes.get(name, [])
        paths = codexitems.paths_of(changes)
        title = f"change {', '.join(paths)}"
        refusal = self._refuse_change(paths)
        if params.get("grantRoot") is not None:
            refusal = "unknown"
        if refusal:
            return self._deny("change", refusal, title, name)
        if self.assignment.shell in ("deny", "never"):
            # Asked only because each command shall ask; that it may write here is in the contract.
            return True
        reason = text_of(params.get("reason"))
        return self._ask("change", title, codexitems.diff_lines(changes), name, reason=reason)

    def _permission(self, params: Mapping[str, Json], asked: Mapping[str, Json], name: str) -> bool:
        refusal = ""
        if not asked:
            refusal = "unknown"
        elif any(value is not None for key, value in asked.items() if key != "network"):
            # The contract names all that may be written, and there is no more to give.
            refusal = "outside"
        elif self.assignment.network == "deny":
            refusal = "network"
        if refusal:
            return self._deny("permission", refusal, "a permission", name)
        reason, detail = text_of(params.get("reason")), [canonical_json.render_json(dict(asked))]
        return self._ask("permission", "use the network", detail, name, reason=reason)


@dataclass(frozen=True, slots=True)
class AcpRequests(_Requests):
    """The requests of an agent that speaks ACP."""

    family = "acp"

    updates: Updates
    tests: TestTool | None = None

    def choose(
        self, tool_call: Mapping[str, Json], options: Sequence[Mapping[str, Json]]
    ) -> str | None:
        """Return the option to answer with; ``None`` calls the request off."""
        name = text_of(tool_call.get("toolCallId"))
        allowed = self._allows(self.updates.note_question(name, tool_call))
        chosen = next(
            (
                option
                for kind in (("allow_once",) if allowed else ("reject_once", "reject_always"))
                for option in options
                if option.get("kind") == kind
            ),
            None,
        )
        if not allowed or chosen is None:
            self.updates.note_refusal(name)
        return None if chosen is None else text_of(chosen.get("optionId"))

    def _allows(self, call: AcpToolCall) -> bool:
        if call.kind == acpupdates.RUNS:
            return self._command(call)
        if call.kind in acpupdates.CHANGES:
            return self._change(call)
        if call.kind in ("read", "search", "think"):
            return True  # They change nothing; what they can see is what the sandbox shows.
        if self.tests is not None and self.tests.is_call(f"{call.name} {call.title}"):
            return True
        return self._other(call)

    def _command(self, call: AcpToolCall) -> bool:
        given = object_of(call.fields.get("rawInput"))
        rest = {name: value for name, value in given.items() if name not in ("command", "cmd")}
        detail = [f"directory: {canonical_json.render_json(str(self.assignment.workspace))}"]
        detail += [f"with: {canonical_json.render_json(rest)}"] if rest else []
        # Last, for it may have many lines, and none of them can pass for one of the others.
        detail += f"command: {call.command}".split("\n")
        title = (call.command or "a command")[:MAX_TITLE]
        refusal = contract_policy.settle(
            self.assignment.shell,
            contract_policy.request(self.assignment.task_id, "command", title, tuple(detail)),
            self.means.approve,
            contained=contract_policy.is_contained(self.assignment, self.means),
        )
        return not refusal or self._deny(
            "command", "shell", call.command, call.call_id, reason=refusal
        )

    def _change(self, call: AcpToolCall) -> bool:
        paths, what = call.paths, f"change {', '.join(call.paths) or call.title}"
        refusal = self._refuse_change(paths)
        if refusal:
            return self._deny("change", refusal, what, call.call_id)
        shell = self.assignment.shell
        contained = contract_policy.is_contained(self.assignment, self.means)
        if shell in ("deny", "never") or (shell == "on-request" and contained):
            # That it may write here is in the assignment, and more than that it cannot write.
            return True
        detail = acpupdates.diff_lines(call.diffs) or [f"{call.kind} {path}" for path in paths]
        return self._ask("change", what, detail, call.call_id)

    def _other(self, call: AcpToolCall) -> bool:
        what = f"permission {', '.join(call.paths) or call.title}"
        if call.kind == "fetch" and self.assignment.network == "deny":
            return self._deny("permission", "network", what, call.call_id)
        if self.assignment.shell in ("deny", "never"):
            return self._deny("permission", "unknown", what, call.call_id)
        given = canonical_json.render_json(call.fields.get("rawInput"))
        detail = [f"input: {given}", *f"title: {call.title}".split("\n")]
        title = call.title or call.kind or "a permission"
        return self._ask("permission", title, detail, call.call_id, what=what)
