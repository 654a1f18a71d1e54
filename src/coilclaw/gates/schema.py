"""The schema gate: a contract that its schema and the rules accept, and nothing else.

``schema.invalid`` the schema says no · ``contract.rule`` a rule beyond the schema does ·
``schema.drift`` the schemas are not those that were registered
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coilclaw.gates.result import GateResult, Violation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coilclaw.contracts.schemas import Problem


def judge(
    name: str,
    *,
    schema_problems: Sequence[Problem],
    rule_problems: Sequence[Problem] = (),
    drift: str = "ok",
) -> GateResult:
    """Judge what ``contracts.schemas`` and ``contracts.rules`` found out about a document."""
    found = [Violation("schema.invalid", str(item), item.path) for item in schema_problems]
    found += [Violation("contract.rule", str(item), item.path) for item in rule_problems]
    if drift != "ok":
        found.append(Violation("schema.drift", f"the schemas do not match their hashes: {drift}"))
    return GateResult("schema_gate", tuple(found), {"schema": name})
