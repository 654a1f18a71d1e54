"""What Codex asks its client for: denied by the contract, or put before whoever approves.

Everything that is not known to be harmless is declined. An approval holds once: the answers that
would hold for longer are never given.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.agents import shellpolicy
from coilclaw.agents.codexcalls import text_of
from coilclaw.agents.codexitems import diff_lines, inside, paths_of
from coilclaw.agents.denial import Denial
from coilclaw.domain import freeform

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.agents.codexitems import Items
    from coilclaw.agents.runner import Assignment, Means
    from coilclaw.domain.messages import Json

MAX_TITLE: Final = 200
_COMMAND: Final = "item/commandExecution/requestApproval"
_CHANGE: Final = "item/fileChange/requestApproval"
_PERMISSION: Final = "item/permissions/requestApproval"
_ELICITATION: Final = "mcpServer/elicitation/request"

REASONS: Final[Mapping[str, str]] = {
    "codex.shell_deny": "the contract allows no shell",
    "codex.shell_never": "the contract allows no command beyond the sandbox",
    "codex.network": "the contract allows no network",
    "codex.read_only": "the contract allows no writing",
    "codex.outside": "it reaches beyond the worktree",
    "codex.not_approved": "the request was not approved",
    "codex.unknown": "it is not known what the request would do",
}
"""Why a request is refused, by its rule."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Approvals:
    """Answers the requests of one performance."""

    assignment: Assignment
    means: Means
    items: Items

    def answer(self, method: str, params: Mapping[str, Json]) -> dict[str, Json] | None:
        """Return the result to send; ``None`` if there is nobody to do what was asked."""
        if method == _COMMAND:
            return _decision(accept=self._command(params))
        if method == _CHANGE:
            return _decision(accept=self._change(params))
        if method == _PERMISSION:
            asked = params.get("permissions")
            granted = asked if self._permission(params) and isinstance(asked, dict) else {}
            return {"permissions": granted, "scope": "turn"}
        if method == _ELICITATION:
            server = text_of(params.get("serverName"))
            self._denied(params, "permission", "codex.unknown", f"a question of {server}")
            return {"action": "decline"}
        return None

    def _command(self, params: Mapping[str, Json]) -> bool:
        command = text_of(params.get("command"))
        shell = self.assignment.shell
        if shell in ("deny", "never"):
            return self._denied(params, "command", f"codex.shell_{shell}", command)
        network = params.get("networkApprovalContext")
        if network is not None and self.assignment.network == "deny":
            return self._denied(params, "command", "codex.network", command)
        detail = [f"directory: {freeform.text(params.get('cwd'))}"]
        for name in ("kind", "stdin", "networkApprovalContext", "additionalPermissions"):
            value = params.get(name)
            if value not in (None, "command"):
                detail.append(f"{name}: {freeform.text(value)}")
        if not command and len(detail) == 1:
            return self._denied(params, "command", "codex.unknown", command)
        # Last, for it may have many lines, and none of them can pass for one of the others.
        detail += f"command: {command}".split("\n")
        return self._ask("command", command or "a command", detail, params)

    def _change(self, params: Mapping[str, Json]) -> bool:
        changes = self.items.changes.get(text_of(params.get("itemId")))
        paths = paths_of(changes or ())
        title = f"change {', '.join(paths)}"
        if not paths or changes is None or params.get("grantRoot") is not None:
            return self._denied(params, "change", "codex.unknown", title)
        if self.assignment.filesystem != "workspace-write":
            return self._denied(params, "change", "codex.read_only", title)
        if not all(inside(path, self.assignment.workspace) for path in paths):
            return self._denied(params, "change", "codex.outside", title)
        if self.assignment.shell in ("deny", "never"):
            # Asked only because each command shall ask; that it may write here is in the contract.
            return True
        return self._ask("change", title, diff_lines(changes), params)

    def _permission(self, params: Mapping[str, Json]) -> bool:
        asked = params.get("permissions")
        if not isinstance(asked, dict) or not asked:
            return self._denied(params, "permission", "codex.unknown", "a permission")
        if any(value is not None for name, value in asked.items() if name != "network"):
            # The contract names all that may be written, and there is no more to give.
            return self._denied(params, "permission", "codex.outside", "a permission")
        if self.assignment.network == "deny":
            return self._denied(params, "permission", "codex.network", "a permission")
        return self._ask("permission", "use the network", [freeform.text(asked)], params)

    def _ask(
        self,
        kind: shellpolicy.RequestKind,
        title: str,
        detail: list[str],
        params: Mapping[str, Json],
    ) -> bool:
        reason = text_of(params.get("reason"))
        task = self.assignment.task_id
        asked = shellpolicy.request(task, kind, title[:MAX_TITLE], tuple(detail), reason)
        granted = self.means.approve(asked).granted
        return granted or self._denied(params, kind, "codex.not_approved", title)

    def _denied(self, params: Mapping[str, Json], kind: str, rule: str, title: str) -> bool:
        _log.warning(
            "the agent asked for what its contract denies: %s",
            kind,
            extra={
                "event": "agent_request_denied",
                "fields": {
                    "task_id": self.assignment.task_id,
                    "kind": kind,
                    "rule": rule,
                    "title": title[:MAX_TITLE],
                },
            },
        )
        self.means.on_denied(
            Denial(title, REASONS[rule], rule, call_id=text_of(params.get("itemId")))
        )
        return False


def _decision(*, accept: bool) -> dict[str, Json]:
    return {"decision": "accept" if accept else "decline"}
