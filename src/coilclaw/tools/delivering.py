"""From a change set to a call that is ready: planned now, written later, exactly as shown."""

from __future__ import annotations

import secrets
from datetime import UTC
from typing import TYPE_CHECKING, Final

from coilclaw.errors import DeniedError, PlanRefused
from coilclaw.tools import output, spot
from coilclaw.tools.basis import Ready, success
from coilclaw.workspace.delivery import Delivered, Denied, Terms, deliver
from coilclaw.workspace.writer import Purpose, Writer, new_change_id

if TYPE_CHECKING:
    from coilclaw.changes.operations import ChangeSet
    from coilclaw.changes.plan import Plan
    from coilclaw.domain.messages import Json
    from coilclaw.domain.toolcalls import ToolResult
    from coilclaw.tools.contract import ToolContext
    from coilclaw.tools.spot import Spot

ORIGIN: Final = "agent"
_VERBS: Final = {"create": "created", "modify": "changed", "delete": "deleted", "mode": "changed"}


def plan(where: Spot, change_set: ChangeSet, context: ToolContext) -> Plan:
    """Work out what a change set would do in the tree of a spot; a denied path denies it all."""
    with spot.tree(where, context) as (root, state):
        try:
            outcome = deliver(root, state, change_set, Terms(dry_run=True))
        except FileNotFoundError as problem:
            raise PlanRefused(
                "a path changed while it was looked at", rule="path.changed", hint="try again"
            ) from problem
        if isinstance(outcome, Denied):
            first = outcome.denials[0].verdict
            raise DeniedError(
                "; ".join(denial.verdict.reason for denial in outcome.denials[:10]),
                rule=first.rule,
            )
        assert isinstance(outcome, Delivered)  # a change set becomes one or the other
        for change in outcome.plan.changes:
            spot.refuse_off_limits(context, root, change.path.parts)
        return outcome.plan


def ready(where: Spot, planned: Plan, context: ToolContext) -> Ready:
    """Return the call that writes a plan; the diff is what a person is shown."""
    from coilclaw.changes import unified

    lines = tuple(unified.diff(planned))
    detail = lines or ("nothing would change",)
    if planned.empty:
        return Ready(detail, _unchanged, lookup="nothing")
    change_id = new_change_id(context.now().astimezone(UTC), secrets.token_hex(8))
    with spot.tree(where, context) as (_, state):
        lookup = f"change {state.directory.name}/{change_id}"
    return Ready(detail, lambda: _written(where, planned, context, change_id), lookup=lookup)


def _unchanged() -> ToolResult:
    return success("everything is as asked already; nothing was changed", {"files": 0})


def _written(where: Spot, planned: Plan, context: ToolContext, change_id: str) -> ToolResult:
    from coilclaw.changes import unified

    purpose = Purpose(ORIGIN, context.turn_id, change_id=change_id)
    with spot.tree(where, context) as (root, state):
        change = Writer(root, state).apply(planned, purpose)
    base = "" if where.inside else "/"
    lines = [
        f"{_VERBS[row.action]} {base}{row.path}"
        + (" (binary)" if row.binary else f" (+{row.added} -{row.removed} lines)")
        for row in unified.summarise(planned)
    ]
    lines += [f"warning: {warning}" for warning in planned.warnings]
    told = output.middle_cut("\n".join(lines), context.limits.output_bytes)
    metadata: dict[str, Json] = {"change": change.id, "files": len(planned.changes)}
    return success(told, metadata)
