"""The output schema gate: an agent's answer is JSON of the bound schema, and nothing beside it.

``output.binding`` no schema is bound · ``output.missing`` there is no JSON answer ·
``output.not_json`` text that is not one JSON object · ``output.schema`` the schema says no ·
``output.task`` an answer for another task
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.contracts.reading import parse
from coilclaw.domain.treepath import shown
from coilclaw.errors import UsageError
from coilclaw.gates.result import GateResult, Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from coilclaw.domain.messages import Json

MAX_PROBLEMS: Final = 100


def judge(
    value: Mapping[str, Json] | None,
    *,
    schema: str,
    problems: Sequence[str],
    task_id: str,
    reason: str = "",
) -> GateResult:
    """Judge an answer that was parsed; ``problems`` is what its schema says about it."""
    found = []
    if not schema:
        found.append(Violation("output.binding", "no output schema is bound"))
    if value is None:
        why = f": {reason}" if reason else ""
        found.append(Violation("output.missing", f"there is no structured answer{why}"))
    found += [Violation("output.schema", text) for text in problems[:MAX_PROBLEMS]]
    said = None if value is None else value.get("task_id", task_id)
    if said is not None and said != task_id:
        message = f"the answer is for {shown(str(said))}, and the task is {shown(task_id)}"
        found.append(Violation("output.task", message, "task_id"))
    return GateResult("output_schema_gate", tuple(found), {"schema": schema, "task_id": task_id})


def judge_text(
    text: str, *, schema: str, check: Callable[[Mapping[str, Json]], Sequence[str]], task_id: str
) -> GateResult:
    """Judge an answer as it came; no fence is taken off and no text around it is overlooked."""
    try:
        value = parse(text.encode("utf-8"))
    except (UsageError, UnicodeEncodeError) as wrong:
        message = wrong.message if isinstance(wrong, UsageError) else "it is not valid Unicode"
        found = Violation("output.not_json", f"the answer is not one JSON object: {message}")
        return GateResult("output_schema_gate", (found,), {"schema": schema, "task_id": task_id})
    return judge(value, schema=schema, problems=check(value), task_id=task_id)
