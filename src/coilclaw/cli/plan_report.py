"""Summarise and print a plan of changes, as text or as JSON."""

from __future__ import annotations

from collections import Counter
from shlex import quote
from typing import TYPE_CHECKING

from coilclaw.changes import unified_diff
from coilclaw.cli.command import count_noun, pick

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.changes import Plan
    from coilclaw.cli.command import Console


def count_changes(plan: Plan) -> str:
    """Return how many files are created, changed and deleted."""
    words = {"create": "created", "modify": "changed", "mode": "changed", "delete": "deleted"}
    numbers = Counter(words[unified_diff.name_action(change)] for change in plan.changes)
    parts = [
        f"{numbers[word]} {word}" for word in ("created", "changed", "deleted") if numbers[word]
    ]
    return f"{count_noun(len(plan.changes), 'file')} ({', '.join(parts)})"


def format_undo_command(change_id: str, root: str) -> str:
    """Return the command that reverts a change of a tree, as typed in the current directory."""
    place = "" if root == "." else f" --root {quote(root)}"
    return f"coilclaw undo {change_id}{place}"


def show_plan(console: Console, plan: Plan, record: Mapping[str, object]) -> bool:
    """Print the diff of a plan, or ``record`` with the plan as JSON; return whether it was JSON."""
    if not console.as_json:
        console.diff(unified_diff.diff_plan(plan))
        return False
    console.data({**record, **_record_plan(plan)})
    return True


def _record_plan(plan: Plan) -> dict[str, object]:
    return {
        "files": [
            {
                **pick(summary, "path", "action", "added", "removed", "binary"),
                "before_sha256": change.before and change.before.digest,
                "after_sha256": change.after and change.after.digest,
            }
            for summary, change in zip(unified_diff.summarise_plan(plan), plan.changes, strict=True)
        ],
        "warnings": list(plan.warnings),
        "diff": "\n".join(unified_diff.diff_plan(plan)) + ("\n" if plan.changes else ""),
    }
