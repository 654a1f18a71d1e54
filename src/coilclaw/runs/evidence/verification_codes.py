"""The codes of verification: stable words for whatever can be wrong with a bundle.

Each belongs to one check, and has one sentence. They are part of the interface: a code is never
used for something else, and a new kind of trouble gets a new one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


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
    """Every code there is; ``MEANINGS`` says what each stands for."""

    MANIFEST_MISSING = "manifest_missing"
    MANIFEST_INVALID = "manifest_invalid"
    MANIFEST_NOT_CANONICAL = "manifest_not_canonical"
    MANIFEST_UNSEALED = "manifest_unsealed"
    MANIFEST_HASHES_INCONSISTENT = "manifest_hashes_inconsistent"
    ROOT_HASH_MISMATCH = "root_hash_mismatch"
    ROOT_HASH_UNEXPECTED = "root_hash_unexpected"
    CHECKPOINT_MISMATCH = "checkpoint_mismatch"
    CHECKPOINT_MISSING = "checkpoint_missing"
    CHECKPOINT_SIGNATURE_INVALID = "checkpoint_signature_invalid"
    CHECKPOINT_UNSIGNED = "checkpoint_unsigned"
    SEAL_INVALID = "seal_invalid"
    SEAL_KEY_MISSING = "seal_key_missing"
    SEAL_KEY_OTHER = "seal_key_other"
    SIGNATURE_INVALID = "signature_invalid"
    SIGNATURE_UNCHECKED = "signature_unchecked"
    EVIDENCE_MISSING = "evidence_missing"
    EVIDENCE_EXTRA = "evidence_extra"
    EVIDENCE_UNREADABLE = "evidence_unreadable"
    MANIFEST_HASH_MISMATCH = "manifest_hash_mismatch"
    DIRECTORY_MISSING = "directory_missing"
    DIRECTORY_EXTRA = "directory_extra"
    ENTRY_ODD = "entry_odd"
    CONTRACT_MISSING = "contract_missing"
    CONTRACT_INVALID = "contract_invalid"
    CONTRACT_HASH_MISMATCH = "contract_hash_mismatch"
    EVENTS_MISSING = "events_missing"
    EVENT_INVALID = "event_invalid"
    EVENT_TS_INVALID = "event_ts_invalid"
    EVENT_ORDER_INVALID = "event_order_invalid"
    EVENTS_HASHCHAIN_INVALID = "events_hashchain_invalid"
    EVENTS_ANCHOR_INVALID = "events_anchor_invalid"
    EVENTS_COUNT_MISMATCH = "events_count_mismatch"
    EVENTS_HEAD_MISMATCH = "events_head_mismatch"
    EVENTS_NOT_SEALED = "events_not_sealed"
    EVENT_EVIDENCE_MISMATCH = "event_evidence_mismatch"
    PATCH_MISSING = "patch_missing"
    PATCH_UNREADABLE = "patch_unreadable"
    PATCH_HASH_MISMATCH = "patch_hash_mismatch"
    DIFF_NAME_ONLY_MISSING = "diff_name_only_missing"
    DIFF_NAMES_MISMATCH = "diff_names_mismatch"
    DIFF_GATE_VIOLATION = "diff_gate_violation"
    TASK_RESULT_MISSING = "task_result_missing"
    TASK_RESULT_INVALID = "task_result_invalid"
    REVIEW_MISSING = "review_missing"
    REVIEW_INVALID = "review_invalid"
    REVIEW_PRODUCED_DIFF = "review_produced_diff"
    TEST_MISSING = "test_missing"
    TEST_INVALID = "test_invalid"
    TEST_COMMAND_OUTSIDE_ACCEPTANCE = "test_command_outside_acceptance"
    TEST_STATUS_INCONSISTENT = "test_status_inconsistent"
    REPORT_INVALID = "report_invalid"
    ARTIFACT_MISMATCH = "artifact_mismatch"
    EVIDENCE_INCOMPLETE = "evidence_incomplete"
    RUN_ID_MISMATCH = "run_id_mismatch"
    RUN_ID_TARGET_MISMATCH = "run_id_target_mismatch"
    MANIFEST_RUN_ID_MISMATCH = "manifest_run_id_mismatch"
    AUDIT_FOREIGN = "audit_foreign"
    TASK_ID_MISMATCH = "task_id_mismatch"
    ATTEMPT_MISMATCH = "attempt_mismatch"
    BASELINE_MISMATCH = "baseline_mismatch"
    HEAD_MISMATCH = "head_mismatch"
    GATE_MISMATCH = "gate_mismatch"
    STATUS_MISMATCH = "status_mismatch"
    STATE_TRANSITION_ILLEGAL = "state_transition_illegal"


MEANINGS: Final[Mapping[Code, tuple[Check, str]]] = {
    Code.MANIFEST_MISSING: (Check.MANIFEST, "There is no manifest.json."),
    Code.MANIFEST_INVALID: (Check.MANIFEST, "The manifest is not what its schema asks for."),
    Code.MANIFEST_NOT_CANONICAL: (Check.MANIFEST, "The manifest's bytes are not RFC 8785."),
    Code.MANIFEST_UNSEALED: (Check.MANIFEST, "The run has not ended, or was not sealed."),
    Code.MANIFEST_HASHES_INCONSISTENT: (
        Check.MANIFEST,
        "The manifest's artifacts and its evidence hashes say different things.",
    ),
    Code.ROOT_HASH_MISMATCH: (Check.SEAL, "The root hash is not that of the manifest."),
    Code.ROOT_HASH_UNEXPECTED: (Check.SEAL, "The root hash is not the one that was expected."),
    Code.CHECKPOINT_MISMATCH: (Check.SEAL, "A checkpoint of the run says something else."),
    Code.CHECKPOINT_MISSING: (Check.SEAL, "None of the checkpoints is about the run."),
    Code.CHECKPOINT_SIGNATURE_INVALID: (Check.SEAL, "A checkpoint was not signed by its key."),
    Code.CHECKPOINT_UNSIGNED: (
        Check.SEAL,
        "A checkpoint is not signed, or by a key that is not known.",
    ),
    Code.SEAL_INVALID: (Check.SEAL, "The seal was not made with the key over this manifest."),
    Code.SEAL_KEY_MISSING: (Check.SEAL, "The key to check the seal with is not there."),
    Code.SEAL_KEY_OTHER: (Check.SEAL, "The seal was made with another key."),
    Code.SIGNATURE_INVALID: (Check.SEAL, "The signature does not fit the manifest."),
    Code.SIGNATURE_UNCHECKED: (Check.SEAL, "No public key of the signature's id was given."),
    Code.EVIDENCE_MISSING: (Check.FILES, "A file that the manifest lists is not there."),
    Code.EVIDENCE_EXTRA: (Check.FILES, "A file is there that the manifest does not list."),
    Code.EVIDENCE_UNREADABLE: (Check.FILES, "A file cannot be read."),
    Code.MANIFEST_HASH_MISMATCH: (Check.FILES, "A file is not what the manifest says."),
    Code.DIRECTORY_MISSING: (Check.FILES, "A directory that the manifest lists is not there."),
    Code.DIRECTORY_EXTRA: (Check.FILES, "A directory is there that the manifest does not list."),
    Code.ENTRY_ODD: (Check.FILES, "There is a link or a special file in the bundle."),
    Code.CONTRACT_MISSING: (Check.CONTRACT, "There is no contract.json."),
    Code.CONTRACT_INVALID: (Check.CONTRACT, "A contract is not what its schema asks for."),
    Code.CONTRACT_HASH_MISMATCH: (Check.CONTRACT, "A contract is not the one the run began with."),
    Code.EVENTS_MISSING: (Check.EVENTS, "There is no events.jsonl, or no event in it."),
    Code.EVENT_INVALID: (Check.EVENTS, "An event is not what its schema or its type asks for."),
    Code.EVENT_TS_INVALID: (Check.EVENTS, "An event's time is not UTC in microseconds."),
    Code.EVENT_ORDER_INVALID: (Check.EVENTS, "An event's time is before the one before it."),
    Code.EVENTS_HASHCHAIN_INVALID: (Check.EVENTS, "The chain of events is broken."),
    Code.EVENTS_ANCHOR_INVALID: (Check.EVENTS, "The anchor of the events does not hold."),
    Code.EVENTS_COUNT_MISMATCH: (Check.EVENTS, "There are not as many events as were sealed."),
    Code.EVENTS_HEAD_MISMATCH: (Check.EVENTS, "The last event is not the one that was sealed."),
    Code.EVENTS_NOT_SEALED: (Check.EVENTS, "RUN_SEALED is not the last event, and the only one."),
    Code.EVENT_EVIDENCE_MISMATCH: (
        Check.EVENTS,
        "An event names a file and a hash that the file does not have.",
    ),
    Code.PATCH_MISSING: (Check.DIFF, "There is no patch.diff."),
    Code.PATCH_UNREADABLE: (Check.DIFF, "The names in a patch cannot be read."),
    Code.PATCH_HASH_MISMATCH: (Check.DIFF, "A patch is not the one that was recorded."),
    Code.DIFF_NAME_ONLY_MISSING: (Check.DIFF, "There is no diff_name_only.txt."),
    Code.DIFF_NAMES_MISMATCH: (Check.DIFF, "The list of names is not that of the patch."),
    Code.DIFF_GATE_VIOLATION: (Check.DIFF, "A patch that was let through leaves its scope."),
    Code.TASK_RESULT_MISSING: (Check.REPORTS, "There is no report of the result."),
    Code.TASK_RESULT_INVALID: (Check.REPORTS, "A result is not what its schema asks for."),
    Code.REVIEW_MISSING: (Check.REPORTS, "There is no report of a review."),
    Code.REVIEW_INVALID: (Check.REPORTS, "A review is not what its schema asks for."),
    Code.REVIEW_PRODUCED_DIFF: (Check.REPORTS, "A review says that it changed something."),
    Code.TEST_MISSING: (Check.REPORTS, "There is no report of tests."),
    Code.TEST_INVALID: (Check.REPORTS, "A report of tests is not what its schema asks for."),
    Code.TEST_COMMAND_OUTSIDE_ACCEPTANCE: (
        Check.TESTS,
        "The commands that ran are not the acceptance tests of the contract.",
    ),
    Code.TEST_STATUS_INCONSISTENT: (Check.TESTS, "The tests' status is not what they ended with."),
    Code.REPORT_INVALID: (Check.REPORTS, "A report is not what its schema asks for."),
    Code.ARTIFACT_MISMATCH: (Check.REPORTS, "A report names a file that is missing or another."),
    Code.EVIDENCE_INCOMPLETE: (Check.REPORTS, "A successful run lacks required evidence."),
    Code.RUN_ID_MISMATCH: (Check.BINDINGS, "A report or event belongs to another run."),
    Code.RUN_ID_TARGET_MISMATCH: (Check.BINDINGS, "The bundle is not of the run asked for."),
    Code.MANIFEST_RUN_ID_MISMATCH: (Check.BINDINGS, "The manifest belongs to another run."),
    Code.AUDIT_FOREIGN: (Check.BINDINGS, "An audit belongs to another run."),
    Code.TASK_ID_MISMATCH: (Check.BINDINGS, "A report or event names a task of no contract."),
    Code.ATTEMPT_MISMATCH: (Check.BINDINGS, "A report is of another attempt than its event."),
    Code.BASELINE_MISMATCH: (Check.BINDINGS, "A report starts from another commit."),
    Code.HEAD_MISMATCH: (Check.BINDINGS, "A report ends at a commit that no event knows."),
    Code.GATE_MISMATCH: (Check.GATES, "A result says of a gate what its event does not."),
    Code.STATUS_MISMATCH: (Check.STATES, "The status is not what the events and gates say."),
    Code.STATE_TRANSITION_ILLEGAL: (Check.STATES, "The run moved where no table lets it."),
}

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
"""After them nobody knows whether the check would have held."""

WARNINGS: Final = frozenset(
    {Code.SIGNATURE_UNCHECKED, Code.CHECKPOINT_UNSIGNED, Code.AUDIT_FOREIGN}
)
"""What is never more than a warning."""
