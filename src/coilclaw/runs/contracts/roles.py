"""The roles of orchestrated work, their order, and the form in which each must answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from collections.abc import Mapping

Role: TypeAlias = Literal[
    "PM",
    "TECH_LEAD",
    "WORKER",
    "REVIEWER",
    "TEST_RUNNER",
    "SEARCHER",
    "RESEARCHER",
    "UI_UX",
    "FRONTEND",
    "BACKEND",
    "AI",
    "SECURITY",
    "INFRA",
    "TEST",
    "OPS",
]
Producer: TypeAlias = Literal[Role, "ORCHESTRATOR"]
"""Who may have made a result: a role, or the orchestrator itself."""

ROLES: Final[tuple[Role, ...]] = get_args(Role)

HANDOFF_ORDER: Final[tuple[Role, ...]] = (
    *("PM", "TECH_LEAD", "SEARCHER", "RESEARCHER", "UI_UX", "FRONTEND", "BACKEND", "AI"),
    *("SECURITY", "INFRA", "OPS", "WORKER", "REVIEWER", "TEST", "TEST_RUNNER"),
)
"""Work is handed on in this order only."""

SPINE: Final[tuple[Role, ...]] = ("PM", "TECH_LEAD", "WORKER", "REVIEWER", "TEST_RUNNER")
"""Within these, no role is left out between two that are present."""

PLANNERS: Final[frozenset[Role]] = frozenset({"PM", "TECH_LEAD"})
"""They make contracts and touch nothing themselves."""

OUTPUT_SCHEMA: Final[Mapping[Role, str]] = {
    **dict.fromkeys(ROLES, "agent_task_result.v1"),
    "REVIEWER": "review_report.v1",
    "TEST": "test_report.v1",
    "TEST_RUNNER": "test_report.v1",
}
"""The schema of a role's answer; every role answers with JSON only."""
