"""Hold what every package builds on: errors, values, records, and our own state on disk.

Errors form one tree (``errors``). Values are frozen: messages, effects, verdicts, paths in a tree.
``document`` and ``strict_json`` read what people and programs wrote and report every problem at
once. A record goes to disk through ``journal``: encoded canonically, chained to the record before
it, synced under a file lock, and anchored with a key so that truncation shows. Files are replaced
atomically, databases opened and locks taken here and in no other package.
"""

from coilclaw.pages import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "atomic_file": (
            "MAX_PRIVATE_BYTES anchor_path create_private read_private sync_data sync_directory "
            "write_all write_atomic"
        ),
        "canonical_json": "digest_bytes encode_record hash_json render_json",
        "checkpoint": (
            "Checkpoint MAX_CHECKPOINTS_BYTES PublicKey SignedCheckpoint SigningKey Trust "
            "from_base64 parse_checkpoints to_base64"
        ),
        "database": "BUSY_S Database Layout",
        "document": (
            "Document DocumentPlace MAX_PROBLEMS Problem Table describe_type write_place is_bare "
            "list_problems quote suggest"
        ),
        "effects": (
            "Consults Decision Effect External Fetches Locate Place Reads Risk Runs Verdict Writes"
        ),
        "errors": (
            "AnswerError CoilClawError DeniedError EnvironmentFault GitFailed JournalDamaged "
            "LockTimeout NearLine PathRefused PlanRefused ProcessFault ProviderAuth "
            "ProviderError ProviderMalformed ProviderNetwork ProviderRateLimit "
            "ProviderRejected ProviderServer ProviderTimeout ProviderTruncated Stopped "
            "UndoRefused UsageError VerificationFailed combine explain_os_errors"
        ),
        "file_lock": "FileLock hold_guard",
        "journal": "Journal",
        "journal_verification": "JournalReport read_head read_raw_lines verify_journal",
        "messages": (
            "ASKER ApprovalAnswer ApprovalReply ApprovalRequest Approve Budget ChatRequest "
            "ChatResponse Json Message Part PartKind Provider ProviderCapabilities "
            "Recollection StreamingProvider ToolAnswer ToolCall ToolResult ToolSpec TurnRecord "
            "Usage"
        ),
        "record": "JSON_NAME Record",
        "schemas": "MAX_SCHEMA_PROBLEMS SchemaProblem find_schema_problems",
        "secret": "NullRedactor Redactor Secret",
        "signals": "interrupt signal_scope",
        "strict_json": "JsonFault MAX_INTEGER measure_depth read_json read_json_object",
        "text": "escape_hidden escape_html valid_text",
        "tree_files": (
            "ChangeKind EntryType FileState Found Obstacle RegularFile Symlink TreeChange TreeDiff"
        ),
        "tree_path": "TreePath fold_name is_below is_below_any quote_text refuse_path",
    },
    modules="canonical_json checkpoint document journal_verification messages schemas",
)
