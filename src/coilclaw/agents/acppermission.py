"""What an ACP agent asks for: denied by the assignment, or put before whoever approves.

Everything that is not known to be harmless is refused. An approval holds once: of the answers that
the agent offers, those that would hold for longer are never given.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.agents import shellpolicy
from coilclaw.agents.acpupdates import CHANGES, RUNS, diff_lines
from coilclaw.agents.codexcalls import text_of
from coilclaw.agents.codexitems import inside
from coilclaw.agents.denial import Denial
from coilclaw.domain import freeform

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coilclaw.agents.acpupdates import ToolCall, Updates
    from coilclaw.agents.runner import AgentRequest, Assignment, Means
    from coilclaw.agents.testtool import TestTool
    from coilclaw.domain.messages import Json

MAX_TITLE: Final = 200
_LOOKS: Final = frozenset({"read", "search", "think"})
"""Kinds of calls that change nothing; what they can see is what the sandbox shows."""
_FETCHES: Final = "fetch"
_YES: Final = ("allow_once",)
_NO: Final = ("reject_once", "reject_always")

REASONS: Final[Mapping[str, str]] = {
    "acp.network": "the contract allows no network",
    "acp.read_only": "the contract allows no writing",
    "acp.outside": "it reaches beyond the worktree",
    "acp.not_approved": "the request was not approved",
    "acp.unknown": "it is not known what the request would do",
}
"""Why a request is refused, by its rule; of a command, the permissions say it."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Permissions:
    """Answers the requests of one performance."""

    assignment: Assignment
    means: Means
    updates: Updates
    tests: TestTool | None = None

    def choose(
        self, tool_call: Mapping[str, Json], options: Sequence[Mapping[str, Json]]
    ) -> str | None:
        """Return the option to answer with; ``None`` calls the request off."""
        name = text_of(tool_call.get("toolCallId"))
        call = self.updates.asked(name, tool_call)
        allowed = self._allows(call)
        for kind in _YES if allowed else _NO:
            for option in options:
                if option.get("kind") == kind:
                    if not allowed:
                        self.updates.refused(name)
                    return text_of(option.get("optionId"))
        self.updates.refused(name)
        return None

    def _allows(self, call: ToolCall) -> bool:
        if call.kind == RUNS:
            return self._command(call)
        if call.kind in CHANGES:
            return self._change(call)
        if call.kind in _LOOKS:
            return True
        if self.tests is not None and self.tests.is_call(f"{call.name} {call.title}"):
            return True
        return self._other(call)

    def _command(self, call: ToolCall) -> bool:
        given = call.fields.get("rawInput")
        detail = [f"directory: {freeform.text(str(self.assignment.workspace))}"]
        if isinstance(given, dict):
            rest = {name: given[name] for name in given if name not in ("command", "cmd")}
            detail += [f"with: {freeform.text(rest)}"] if rest else []
        # Last, for it may have many lines, and none of them can pass for one of the others.
        detail += f"command: {call.command}".split("\n")
        asked = self._request("command", call.command or "a command", detail)
        ruling = shellpolicy.settle(
            self.assignment.shell,
            asked,
            self.means.approve,
            contained=shellpolicy.is_contained(self.assignment, self.means),
        )
        return ruling.allowed or self._denied("command", "acp.shell", call, ruling.reason)

    def _change(self, call: ToolCall) -> bool:
        paths = call.paths
        if not paths:
            return self._denied("change", "acp.unknown", call)
        if self.assignment.filesystem != "workspace-write":
            return self._denied("change", "acp.read_only", call)
        if not all(inside(path, self.assignment.workspace) for path in paths):
            return self._denied("change", "acp.outside", call)
        shell = self.assignment.shell
        contained = shellpolicy.is_contained(self.assignment, self.means)
        if shell in ("deny", "never") or (shell == "on-request" and contained):
            # That it may write here is in the assignment, and more than that it cannot write.
            return True
        detail = diff_lines(call.diffs) or [f"{call.kind} {path}" for path in paths]
        asked = self._request("change", f"change {', '.join(paths)}", detail)
        granted = self.means.approve(asked).granted
        return granted or self._denied("change", "acp.not_approved", call)

    def _other(self, call: ToolCall) -> bool:
        if call.kind == _FETCHES and self.assignment.network == "deny":
            return self._denied("permission", "acp.network", call)
        if self.assignment.shell in ("deny", "never"):
            return self._denied("permission", "acp.unknown", call)
        given = call.fields.get("rawInput")
        detail = [f"input: {freeform.text(given)}", *f"title: {call.title}".split("\n")]
        asked = self._request("permission", call.title or call.kind or "a permission", detail)
        granted = self.means.approve(asked).granted
        return granted or self._denied("permission", "acp.not_approved", call)

    def _request(
        self, kind: shellpolicy.RequestKind, title: str, detail: list[str]
    ) -> AgentRequest:
        task = self.assignment.task_id
        return shellpolicy.request(task, kind, title[:MAX_TITLE], tuple(detail))

    def _denied(self, kind: str, rule: str, call: ToolCall, reason: str = "") -> bool:
        _log.warning(
            "the agent asked for what it does not get: %s",
            kind,
            extra={
                "event": "agent_request_denied",
                "fields": {
                    "task_id": self.assignment.task_id,
                    "kind": kind,
                    "rule": rule,
                    "title": call.title[:MAX_TITLE],
                },
            },
        )
        named = call.command if kind == "command" else ", ".join(call.paths) or call.title
        what = named if kind == "command" else f"{kind} {named}"
        self.means.on_denied(Denial(what, reason or REASONS[rule], rule, call_id=call.call_id))
        return False
