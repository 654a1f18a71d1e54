"""A plan in figures, for people and for machines."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

from coilclaw.changes import unified

if TYPE_CHECKING:
    from coilclaw.changes.plan import FileChange, Plan
    from coilclaw.domain.files import FileState


def counted(plan: Plan) -> str:
    """Say how many files are created, changed and deleted."""
    actions = [unified.action(change) for change in plan.changes]
    parts = [
        f"{number} {word}"
        for word, number in (
            ("created", actions.count("create")),
            ("changed", actions.count("modify") + actions.count("mode")),
            ("deleted", actions.count("delete")),
        )
        if number
    ]
    return f"{len(actions)} file{'s' if len(actions) != 1 else ''} ({', '.join(parts)})"


def undo_command(change_id: str, root: str) -> str:
    """Return the command that takes a change of a tree back, as it is typed in this directory."""
    place = "" if root == "." else f" --root {quote(root)}"
    return f"coilclaw undo {change_id}{place}"


def plan_record(plan: Plan) -> dict[str, object]:
    """Return a plan as JSON values."""
    summaries = unified.summarise(plan)
    return {
        "files": [
            {
                "path": summary.path,
                "action": summary.action,
                "added": summary.added,
                "removed": summary.removed,
                "binary": summary.binary,
                **_digests(change),
            }
            for summary, change in zip(summaries, plan.changes, strict=True)
        ],
        "warnings": list(plan.warnings),
        "diff": "\n".join(unified.diff(plan)) + ("\n" if plan.changes else ""),
    }


def _digests(change: FileChange) -> dict[str, object]:
    return {"before_sha256": _digest(change.before), "after_sha256": _digest(change.after)}


def _digest(state: FileState) -> str | None:
    return None if state is None else state.digest
