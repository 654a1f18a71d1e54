"""The types of a run's events, and the keys that the payload of each must have."""

from enum import StrEnum
from typing import Final, Self

GATE_KEYS: Final = ("gate", "passed", "violations", "facts")
"""Payload of every gate's own event; ``facts`` is RFC 8785 text."""


class EventType(StrEnum):
    """Every type there is, with what its payload holds at least; another type is refused."""

    _value_: str
    required: tuple[str, ...]

    def __new__(cls, value: str, *required: str) -> Self:
        member = str.__new__(cls, value)
        member._value_, member.required = value, required
        return member

    RUN_CREATED = (
        "RUN_CREATED",
        *("contract_sha256", "source", "baseline_commit", "runner", "policy_sha256"),
    )
    RUN_RESUMED = "RUN_RESUMED", "process"
    RUN_PAUSED = "RUN_PAUSED", "reason"
    RUN_FINISHED = "RUN_FINISHED", "status", "reason", "merge"
    RUN_SEALED = "RUN_SEALED", "status"
    STATE_TRANSITION = "STATE_TRANSITION", "from", "to", "trigger"
    SCHEMA_REGISTRY_CHECK = "SCHEMA_REGISTRY_CHECK", "status", "registry_sha256"
    POLICY_PACK_SELECTED = "POLICY_PACK_SELECTED", "pack", "policy_sha256"
    RUNNER_SELECTED = "RUNNER_SELECTED", "runner", "reviewer"
    CONTRACT_WRITTEN = "CONTRACT_WRITTEN", "path", "sha256", "parent_task_id"
    MODEL_ASKED = "MODEL_ASKED", "role", "provider", "model", "request_sha256", "answer_sha256"
    PLAN_REFUSED = "PLAN_REFUSED", "number", "problems"
    USER_ASKED = "USER_ASKED", "question"
    USER_ANSWERED = "USER_ANSWERED", "question", "answer"
    HANDOFF_RECORDED = "HANDOFF_RECORDED", "from", "to", "instruction_sha256"
    WORKTREE_CREATED = "WORKTREE_CREATED", "path", "commit"
    WORKTREE_REMOVED = "WORKTREE_REMOVED", "path"
    LOCKS_AWAITED = "LOCKS_AWAITED", "paths", "holders", "since"
    LOCKS_ACQUIRED = "LOCKS_ACQUIRED", "paths"
    LOCKS_RELEASED = "LOCKS_RELEASED", "paths"
    LOCK_RECLAIMED = "LOCK_RECLAIMED", "path", "owner"
    BASELINE_MOVED = "BASELINE_MOVED", "from", "baseline_commit", "policy_sha256"
    TASK_STARTED = "TASK_STARTED", "runner", "snapshot", "tree"
    TASK_RESULT_RECORDED = (
        "TASK_RESULT_RECORDED",
        *("status", "snapshot", "tree", "patch_sha256", "path", "sha256"),
    )
    RUNNER_FAILED = "RUNNER_FAILED", "status", "reason"
    SNAPSHOT_TAKEN = "SNAPSHOT_TAKEN", "snapshot", "tree", "why"
    ROLLBACK_APPLIED = "ROLLBACK_APPLIED", "strategy", "snapshot", "baseline_commit"
    COMMAND_STARTED = "COMMAND_STARTED", "name", "argv"
    COMMAND_FINISHED = "COMMAND_FINISHED", "name", "exit_code", "outcome"
    CANDIDATE_PREPARED = "CANDIDATE_PREPARED", "commit", "tree", "snapshot", "tasks"
    SETUP_RESULT = "SETUP_RESULT", "status", "path", "sha256", "commit", "key"
    BASELINE_RESULT = "BASELINE_RESULT", "status", "path", "sha256", "commit"
    TEST_RESULT = "TEST_RESULT", "status", "path", "sha256", "tree"
    REVIEW_RESULT = "REVIEW_RESULT", "verdict", "path", "sha256"
    FIX_LOOP_TRIGGERED = "FIX_LOOP_TRIGGERED", "child_task_id", "reason", "retries_left"
    FIX_LOOP_EXHAUSTED = "FIX_LOOP_EXHAUSTED", "reason"
    HUMAN_APPROVAL_REQUIRED = "HUMAN_APPROVAL_REQUIRED", "approval_id", "kind", "digest", "reason"
    HUMAN_APPROVAL_COMPLETED = "HUMAN_APPROVAL_COMPLETED", "approval_id", "approved", "by"
    HUMAN_APPROVAL_TIMEOUT = "HUMAN_APPROVAL_TIMEOUT", "approval_id"
    MERGE_STARTED = "MERGE_STARTED", "branch", "target_commit", "candidate_commit"
    MERGE_COMPLETED = "MERGE_COMPLETED", "branch", "commit", "tree"
    MERGE_PENDING = "MERGE_PENDING", "branch", "commit"
    SCHEMA_GATE_RESULT = "SCHEMA_GATE_RESULT", *GATE_KEYS
    OUTPUT_SCHEMA_ENFORCED = "OUTPUT_SCHEMA_ENFORCED", *GATE_KEYS
    POLICY_GATE_RESULT = "POLICY_GATE_RESULT", *GATE_KEYS
    LOCK_GATE_RESULT = "LOCK_GATE_RESULT", *GATE_KEYS
    DIFF_GATE_RESULT = "DIFF_GATE_RESULT", *GATE_KEYS
    TOOL_GATE_RESULT = "TOOL_GATE_RESULT", *GATE_KEYS
    NETWORK_GATE_RESULT = "NETWORK_GATE_RESULT", *GATE_KEYS
    MCP_TOOL_GATE_RESULT = "MCP_TOOL_GATE_RESULT", *GATE_KEYS
    INTEGRATED_GATE_RESULT = "INTEGRATED_GATE_RESULT", *GATE_KEYS
    MCP_SAMPLING_GATE_RESULT = "MCP_SAMPLING_GATE_RESULT", *GATE_KEYS
    REVIEWER_GATE_RESULT = "REVIEWER_GATE_RESULT", *GATE_KEYS
    TESTS_GATE_RESULT = "TESTS_GATE_RESULT", *GATE_KEYS
    HUMAN_APPROVAL_GATE_RESULT = "HUMAN_APPROVAL_GATE_RESULT", *GATE_KEYS
    MERGE_GATE_RESULT = "MERGE_GATE_RESULT", *GATE_KEYS
    POLICY_VIOLATION = "policy_violation", "reason", "rule", "path"
    GATE_FAILED = "gate_failed", "gate", "reason", "rule"
    GATE_RESULT = "GATE_RESULT", *GATE_KEYS
