"""The codes of verification: stable names for everything that can be wrong with a bundle.

Each code belongs to one check. Codes are part of the interface: none is reused for another problem,
and a new kind of problem gets a new code.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Self


class Check(StrEnum):
    """What verification looks at, in this order."""

    MANIFEST = "manifest"
    SEAL = "seal"
    FILES = "files"
    EVENTS = "events"
    CONTRACT = "contract"
    REPORTS = "reports"
    BINDINGS = "bindings"
    TESTS = "tests"
    DIFF = "diff"
    GATES = "gates"
    STATES = "states"


class Code(StrEnum):
    """Every code that verification reports; ``docs/evidence.md`` says what each one means."""

    check: Check

    def __new__(cls, value: str, check: Check) -> Self:
        """Make a code that belongs to a check."""
        code = str.__new__(cls, value)
        code._value_, code.check = value, check
        return code

    MANIFEST_MISSING = "manifest_missing", Check.MANIFEST
    MANIFEST_INVALID = "manifest_invalid", Check.MANIFEST
    MANIFEST_NOT_CANONICAL = "manifest_not_canonical", Check.MANIFEST
    MANIFEST_UNSEALED = "manifest_unsealed", Check.MANIFEST
    MANIFEST_HASHES_INCONSISTENT = "manifest_hashes_inconsistent", Check.MANIFEST
    ROOT_HASH_MISMATCH = "root_hash_mismatch", Check.SEAL
    ROOT_HASH_UNEXPECTED = "root_hash_unexpected", Check.SEAL
    CHECKPOINT_MISMATCH = "checkpoint_mismatch", Check.SEAL
    CHECKPOINT_MISSING = "checkpoint_missing", Check.SEAL
    CHECKPOINT_SIGNATURE_INVALID = "checkpoint_signature_invalid", Check.SEAL
    CHECKPOINT_UNSIGNED = "checkpoint_unsigned", Check.SEAL
    SEAL_INVALID = "seal_invalid", Check.SEAL
    SEAL_KEY_MISSING = "seal_key_missing", Check.SEAL
    SEAL_KEY_OTHER = "seal_key_other", Check.SEAL
    SIGNATURE_INVALID = "signature_invalid", Check.SEAL
    SIGNATURE_UNCHECKED = "signature_unchecked", Check.SEAL
    EVIDENCE_MISSING = "evidence_missing", Check.FILES
    EVIDENCE_EXTRA = "evidence_extra", Check.FILES
    EVIDENCE_UNREADABLE = "evidence_unreadable", Check.FILES
    MANIFEST_HASH_MISMATCH = "manifest_hash_mismatch", Check.FILES
    DIRECTORY_MISSING = "directory_missing", Check.FILES
    DIRECTORY_EXTRA = "directory_extra", Check.FILES
    ENTRY_ODD = "entry_odd", Check.FILES
    CONTRACT_MISSING = "contract_missing", Check.CONTRACT
    CONTRACT_INVALID = "contract_invalid", Check.CONTRACT
    CONTRACT_HASH_MISMATCH = "contract_hash_mismatch", Check.CONTRACT
    EVENTS_MISSING = "events_missing", Check.EVENTS
    EVENT_INVALID = "event_invalid", Check.EVENTS
    EVENT_TS_INVALID = "event_ts_invalid", Check.EVENTS
    EVENT_ORDER_INVALID = "event_order_invalid", Check.EVENTS
    EVENTS_HASHCHAIN_INVALID = "events_hashchain_invalid", Check.EVENTS
    EVENTS_ANCHOR_INVALID = "events_anchor_invalid", Check.EVENTS
    EVENTS_COUNT_MISMATCH = "events_count_mismatch", Check.EVENTS
    EVENTS_HEAD_MISMATCH = "events_head_mismatch", Check.EVENTS
    EVENTS_NOT_SEALED = "events_not_sealed", Check.EVENTS
    EVENT_EVIDENCE_MISMATCH = "event_evidence_mismatch", Check.EVENTS
    PATCH_MISSING = "patch_missing", Check.DIFF
    PATCH_UNREADABLE = "patch_unreadable", Check.DIFF
    PATCH_HASH_MISMATCH = "patch_hash_mismatch", Check.DIFF
    DIFF_NAME_ONLY_MISSING = "diff_name_only_missing", Check.DIFF
    DIFF_NAMES_MISMATCH = "diff_names_mismatch", Check.DIFF
    DIFF_GATE_VIOLATION = "diff_gate_violation", Check.DIFF
    TASK_RESULT_MISSING = "task_result_missing", Check.REPORTS
    TASK_RESULT_INVALID = "task_result_invalid", Check.REPORTS
    REVIEW_MISSING = "review_missing", Check.REPORTS
    REVIEW_INVALID = "review_invalid", Check.REPORTS
    REVIEW_PRODUCED_DIFF = "review_produced_diff", Check.REPORTS
    TEST_MISSING = "test_missing", Check.REPORTS
    TEST_INVALID = "test_invalid", Check.REPORTS
    TEST_COMMAND_OUTSIDE_ACCEPTANCE = "test_command_outside_acceptance", Check.TESTS
    TEST_STATUS_INCONSISTENT = "test_status_inconsistent", Check.TESTS
    REPORT_INVALID = "report_invalid", Check.REPORTS
    ARTIFACT_MISMATCH = "artifact_mismatch", Check.REPORTS
    EVIDENCE_INCOMPLETE = "evidence_incomplete", Check.REPORTS
    RUN_ID_MISMATCH = "run_id_mismatch", Check.BINDINGS
    RUN_ID_TARGET_MISMATCH = "run_id_target_mismatch", Check.BINDINGS
    MANIFEST_RUN_ID_MISMATCH = "manifest_run_id_mismatch", Check.BINDINGS
    AUDIT_FOREIGN = "audit_foreign", Check.BINDINGS
    TASK_ID_MISMATCH = "task_id_mismatch", Check.BINDINGS
    ATTEMPT_MISMATCH = "attempt_mismatch", Check.BINDINGS
    BASELINE_MISMATCH = "baseline_mismatch", Check.BINDINGS
    HEAD_MISMATCH = "head_mismatch", Check.BINDINGS
    GATE_MISMATCH = "gate_mismatch", Check.GATES
    STATUS_MISMATCH = "status_mismatch", Check.STATES
    STATE_TRANSITION_ILLEGAL = "state_transition_illegal", Check.STATES


LENIENT: Final = frozenset(
    {
        Code.SEAL_KEY_MISSING,
        Code.SEAL_KEY_OTHER,
        Code.MANIFEST_UNSEALED,
        Code.EVENTS_NOT_SEALED,
        Code.RUN_ID_TARGET_MISMATCH,
    }
)
"""What is only a warning unless verification is strict."""

UNCHECKED: Final = frozenset({Code.SEAL_KEY_MISSING, Code.SEAL_KEY_OTHER})
"""After one of these, the result of the check is unknown."""

WARNINGS: Final = frozenset(
    {Code.SIGNATURE_UNCHECKED, Code.CHECKPOINT_UNSIGNED, Code.AUDIT_FOREIGN}
)
"""What is never more than a warning."""
