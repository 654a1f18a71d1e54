"""``GateResult``: what a gate says, with every violation and its rule."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.domain.messages import Json

GateName: TypeAlias = Literal[
    "schema_gate",
    "output_schema_gate",
    "policy_gate",
    "lock_gate",
    "diff_gate",
    "tool_gate",
    "network_gate",
    "mcp_gate",
    "integrated_gate",
    "sampling_gate",
    "reviewer_gate",
    "tests_gate",
    "human_approval_gate",
    "merge_gate",
]


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that is not as it must be."""

    rule: str
    """Dotted and stable, such as ``diff.out_of_scope``."""
    message: str
    """What, where, and what is allowed."""
    path: str = ""
    """The path in the tree, or the key in the contract, where there is one."""

    def __str__(self) -> str:
        return f"{self.rule}: {self.message}"


@dataclass(frozen=True, slots=True)
class GateResult:
    """The answer of one gate; it passed exactly when nothing violates it."""

    gate: GateName
    violations: tuple[Violation, ...] = ()
    facts: Mapping[str, Json] = field(default_factory=dict)
    """What was looked at, for the event: integers, texts, booleans and lists of them."""

    @property
    def passed(self) -> bool:
        return not self.violations
