"""The types of a run's events, and the keys that the payload of each must have."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class EventType(StrEnum):
    """Every type there is; an event of another type is refused."""

    RUN_CREATED = "RUN_CREATED"
    RUN_RESUMED = "RUN_RESUMED"
    RUN_PAUSED = "RUN_PAUSED"
    RUN_FINISHED = "RUN_FINISHED"
    RUN_SEALED = "RUN_SEALED"
    STATE_TRANSITION = "STATE_TRANSITION"
    SCHEMA_REGISTRY_CHECK = "SCHEMA_REGISTRY_CHECK"
    POLICY_PACK_SELECTED = "POLICY_PACK_SELECTED"
    RUNNER_SELECTED = "RUNNER_SELECTED"
    CONTRACT_WRITTEN = "CONTRACT_WRITTEN"
    MODEL_ASKED = "MODEL_ASKED"
    PLAN_REFUSED = "PLAN_REFUSED"
    USER_ASKED = "USER_ASKED"
    USER_ANSWERED = "USER_ANSWERED"
    HANDOFF_RECORDED = "HANDOFF_RECORDED"
    WORKTREE_CREATED = "WORKTREE_CREATED"
    WORKTREE_REMOVED = "WORKTREE_REMOVED"
    LOCKS_AWAITED = "LOCKS_AWAITED"
    LOCKS_ACQUIRED = "LOCKS_ACQUIRED"
    LOCKS_RELEASED = "LOCKS_RELEASED"
    LOCK_RECLAIMED = "LOCK_RECLAIMED"
    BASELINE_MOVED = "BASELINE_MOVED"
    TASK_STARTED = "TASK_STARTED"
    TASK_RESULT_RECORDED = "TASK_RESULT_RECORDED"
    RUNNER_FAILED = "RUNNER_FAILED"
    SNAPSHOT_TAKEN = "SNAPSHOT_TAKEN"
    ROLLBACK_APPLIED = "ROLLBACK_APPLIED"
    COMMAND_STARTED = "COMMAND_STARTED"
    COMMAND_FINISHED = "COMMAND_FINISHED"
    CANDIDATE_PREPARED = "CANDIDATE_PREPARED"
    SETUP_RESULT = "SETUP_RESULT"
    BASELINE_RESULT = "BASELINE_RESULT"
    TEST_RESULT = "TEST_RESULT"
    REVIEW_RESULT = "REVIEW_RESULT"
    FIX_LOOP_TRIGGERED = "FIX_LOOP_TRIGGERED"
    FIX_LOOP_EXHAUSTED = "FIX_LOOP_EXHAUSTED"
    HUMAN_APPROVAL_REQUIRED = "HUMAN_APPROVAL_REQUIRED"
    HUMAN_APPROVAL_COMPLETED = "HUMAN_APPROVAL_COMPLETED"
    HUMAN_APPROVAL_TIMEOUT = "HUMAN_APPROVAL_TIMEOUT"
    MERGE_STARTED = "MERGE_STARTED"
    MERGE_COMPLETED = "MERGE_COMPLETED"
    MERGE_PENDING = "MERGE_PENDING"
    SCHEMA_GATE_RESULT = "SCHEMA_GATE_RESULT"
    OUTPUT_SCHEMA_ENFORCED = "OUTPUT_SCHEMA_ENFORCED"
    POLICY_GATE_RESULT = "POLICY_GATE_RESULT"
    LOCK_GATE_RESULT = "LOCK_GATE_RESULT"
    DIFF_GATE_RESULT = "DIFF_GATE_RESULT"
    TOOL_GATE_RESULT = "TOOL_GATE_RESULT"
    NETWORK_GATE_RESULT = "NETWORK_GATE_RESULT"
    MCP_TOOL_GATE_RESULT = "MCP_TOOL_GATE_RESULT"
    INTEGRATED_GATE_RESULT = "INTEGRATED_GATE_RESULT"
    MCP_SAMPLING_GATE_RESULT = "MCP_SAMPLING_GATE_RESULT"
    REVIEWER_GATE_RESULT = "REVIEWER_GATE_RESULT"
    TESTS_GATE_RESULT = "TESTS_GATE_RESULT"
    HUMAN_APPROVAL_GATE_RESULT = "HUMAN_APPROVAL_GATE_RESULT"
    MERGE_GATE_RESULT = "MERGE_GATE_RESULT"
    POLICY_VIOLATION = "policy_violation"
    GATE_FAILED = "gate_failed"


GATE_KEYS: Final = ("gate", "passed", "violations", "facts")
"""Payload of every gate's own event; ``facts`` is RFC 8785 text."""

REQUIRED_KEYS: Final[Mapping[EventType, tuple[str, ...]]] = {
    EventType.RUN_CREATED: (
        "contract_sha256",
        "source",
        "baseline_commit",
        "runner",
        "policy_sha256",
    ),
    EventType.RUN_RESUMED: ("process",),
    EventType.RUN_PAUSED: ("reason",),
    EventType.RUN_FINISHED: ("status", "reason", "merge"),
    EventType.RUN_SEALED: ("status",),
    EventType.STATE_TRANSITION: ("from", "to", "trigger"),
    EventType.SCHEMA_REGISTRY_CHECK: ("status", "registry_sha256"),
    EventType.POLICY_PACK_SELECTED: ("pack", "policy_sha256"),
    EventType.RUNNER_SELECTED: ("runner", "reviewer"),
    EventType.CONTRACT_WRITTEN: ("path", "sha256", "parent_task_id"),
    EventType.MODEL_ASKED: ("role", "provider", "model", "request_sha256", "answer_sha256"),
    EventType.PLAN_REFUSED: ("number", "problems"),
    EventType.USER_ASKED: ("question",),
    EventType.USER_ANSWERED: ("question", "answer"),
    EventType.HANDOFF_RECORDED: ("from", "to", "instruction_sha256"),
    EventType.WORKTREE_CREATED: ("path", "commit"),
    EventType.WORKTREE_REMOVED: ("path",),
    EventType.LOCKS_AWAITED: ("paths", "holders", "since"),
    EventType.LOCKS_ACQUIRED: ("paths",),
    EventType.LOCKS_RELEASED: ("paths",),
    EventType.LOCK_RECLAIMED: ("path", "owner"),
    EventType.BASELINE_MOVED: ("from", "baseline_commit", "policy_sha256"),
    EventType.TASK_STARTED: ("runner", "snapshot", "tree"),
    EventType.TASK_RESULT_RECORDED: (
        "status",
        "snapshot",
        "tree",
        "patch_sha256",
        "path",
        "sha256",
    ),
    EventType.RUNNER_FAILED: ("status", "reason"),
    EventType.SNAPSHOT_TAKEN: ("snapshot", "tree", "why"),
    EventType.ROLLBACK_APPLIED: ("strategy", "snapshot", "baseline_commit"),
    EventType.COMMAND_STARTED: ("name", "argv"),
    EventType.COMMAND_FINISHED: ("name", "exit_code", "outcome"),
    EventType.CANDIDATE_PREPARED: ("commit", "tree", "snapshot", "tasks"),
    EventType.SETUP_RESULT: ("status", "path", "sha256", "commit", "key"),
    EventType.BASELINE_RESULT: ("status", "path", "sha256", "commit"),
    EventType.TEST_RESULT: ("status", "path", "sha256", "tree"),
    EventType.REVIEW_RESULT: ("verdict", "path", "sha256"),
    EventType.FIX_LOOP_TRIGGERED: ("child_task_id", "reason", "retries_left"),
    EventType.FIX_LOOP_EXHAUSTED: ("reason",),
    EventType.HUMAN_APPROVAL_REQUIRED: ("approval_id", "kind", "digest", "reason"),
    EventType.HUMAN_APPROVAL_COMPLETED: ("approval_id", "approved", "by"),
    EventType.HUMAN_APPROVAL_TIMEOUT: ("approval_id",),
    EventType.MERGE_STARTED: ("branch", "target_commit", "candidate_commit"),
    EventType.MERGE_COMPLETED: ("branch", "commit", "tree"),
    EventType.MERGE_PENDING: ("branch", "commit"),
    EventType.POLICY_VIOLATION: ("reason", "rule", "path"),
    EventType.GATE_FAILED: ("gate", "reason", "rule"),
    **dict.fromkeys(
        (
            EventType.SCHEMA_GATE_RESULT,
            EventType.OUTPUT_SCHEMA_ENFORCED,
            EventType.POLICY_GATE_RESULT,
            EventType.LOCK_GATE_RESULT,
            EventType.DIFF_GATE_RESULT,
            EventType.TOOL_GATE_RESULT,
            EventType.NETWORK_GATE_RESULT,
            EventType.MCP_TOOL_GATE_RESULT,
            EventType.INTEGRATED_GATE_RESULT,
            EventType.MCP_SAMPLING_GATE_RESULT,
            EventType.REVIEWER_GATE_RESULT,
            EventType.TESTS_GATE_RESULT,
            EventType.HUMAN_APPROVAL_GATE_RESULT,
            EventType.MERGE_GATE_RESULT,
        ),
        GATE_KEYS,
    ),
}
"""What the payload of each type holds at least; it may hold more."""
