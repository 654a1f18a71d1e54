"""Contracts, models with fixed answers and changes, for the tests of the planning plane."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from coilclaw.kernel import schemas
from coilclaw.kernel.messages import Json
from coilclaw.models.mock import Mock, parse_fixture
from coilclaw.runs.contracts.task_contract import TaskContract
from coilclaw.runs.roles.model_questions import ModelPlane, RoleExchange
from coilclaw.runs.roles.rule_review import ChangedFile, ReviewEvidence
from coilclaw.workspace.process.cancellation import Cancellation

NOW = "2026-11-15T10:00:00Z"
RUN = "run_20261115_100000_abcdef"


@dataclass
class Heard:
    """What a plane recorded."""

    exchanges: list[RoleExchange] = field(default_factory=list)

    @property
    def roles(self) -> list[str]:
        return [exchange.role for exchange in self.exchanges]


def mock(*answers: Json) -> Mock:
    """Return a provider that plays answers; one that is no fixture entry is played as its JSON."""
    entries: list[Json] = [
        answer
        if isinstance(answer, dict) and set(answer) & {"text", "tool_calls", "error"}
        else {"text": answer if isinstance(answer, str) else json.dumps(answer)}
        for answer in answers
    ]
    made, problems = parse_fixture(entries)
    assert problems == []
    return Mock("m", "m", made)


def plane(*answers: Json, cancel: Cancellation | None = None) -> tuple[ModelPlane, Heard]:
    heard = Heard()
    redact = _redacted
    return ModelPlane(mock(*answers), "model-x", heard.exchanges.append, redact, cancel), heard


def _redacted(text: str) -> str:
    return text.replace("sk-canary", "[REDACTED]")


def contract(**changes: Json) -> TaskContract:
    """Return a contract for one worker; what is given replaces fields of its JSON."""
    value: dict[str, Json] = {
        "task_id": "task-0001",
        "owner_agent": {"role": "TECH_LEAD", "agent_id": "tech-lead-1"},
        "assigned_agent": {"role": "WORKER", "agent_id": "worker-1"},
        "inputs": {
            "spec": "Add a greeting.",
            "artifacts": [
                {
                    "name": "output_schema.worker",
                    "uri": "schemas/agent_task_result.v1.json",
                    "sha256": schemas.sha256("agent_task_result.v1"),
                }
            ],
        },
        "required_outputs": [{"name": "patch", "type": "patch", "acceptance": "tests pass"}],
        "allowed_paths": ["src/app", "tests/test_app.py"],
        "forbidden_actions": ["rm -rf"],
        "acceptance_tests": [
            {"name": "unit", "cmd": "pytest tests/test_app.py", "must_pass": True}
        ],
        "tool_permissions": {
            "filesystem": "workspace-write",
            "shell": "never",
            "network": "deny",
            "mcp_tools": [],
        },
        "timeout_retry": {"timeout_sec": 600, "max_retries": 1, "retry_backoff_sec": 0},
        "rollback": {"strategy": "worktree_drop", "baseline_ref": "HEAD"},
        "evidence_links": [],
        "log_refs": {"run_id": RUN, "paths": {}},
        "mcp_tool_set": ["codex"],
    }
    return TaskContract.of({**value, **changes})


def evidence(
    *changes: ChangedFile,
    of: TaskContract | None = None,
    patch: str = "diff --git a/src/app/a.py b/src/app/a.py\n",
    **more: object,
) -> ReviewEvidence:
    fields: Mapping[str, object] = {
        "run_id": RUN,
        "task_id": "task-0001",
        "attempt": 0,
        "contract": of or contract(),
        "changes": changes or (changed("src/app/a.py", "a = 1\n", "a = 2\n"),),
        "patch": patch,
        "reviewed_at": NOW,
        "workers": frozenset({"worker-1"}),
        **more,
    }
    return ReviewEvidence(**fields)  # type: ignore[arg-type]  # each test knows its fields


def changed(path: str, before: str | None, after: str | None) -> ChangedFile:
    return ChangedFile(
        path,
        None if before is None else before.encode(),
        None if after is None else after.encode(),
    )
