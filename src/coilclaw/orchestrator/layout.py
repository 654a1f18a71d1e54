"""What a run bundle consists of: its folders, its files, and which of them may be written again.

Paths in a bundle are relative, with ``/``, and ASCII: they stand in canonical JSON as keys.
"""

from __future__ import annotations

import re
from typing import Final

from coilclaw.errors import UsageError

CONTRACT: Final = "contract.json"
GIVEN: Final = "artifacts/contract.given.json"
"""The contract as somebody gave it, byte for byte; ``contract.json`` is what it became."""
MANIFEST: Final = "manifest.json"
EVENTS: Final = "events.jsonl"
ANCHOR: Final = "events.jsonl.anchor"
PATCH: Final = "patch.diff"
NAMES: Final = "diff_name_only.txt"
META: Final = "meta.json"
WORKTREE_REF: Final = "worktree_ref.txt"
TASK_RESULT: Final = "reports/task_result.json"
REVIEW_REPORT: Final = "reports/review_report.json"
SETUPS: Final = "ci/setup-"
"""Before the key of each set-up: where its report and its logs are."""
PLAN_SETUPS: Final = "artifacts/setup-"
"""The same for a set-up that is made before there is a contract."""
TEST_REPORT: Final = "reports/test_report.json"
EVIDENCE_BUNDLE: Final = "reports/evidence_bundle.json"
EVIDENCE_REPORT: Final = "reports/evidence_report.json"
GIT_BASELINE: Final = "git/baseline_commit.txt"
GIT_PATCH: Final = "git/patch.diff"
GIT_NAMES: Final = "git/diff_name_only.txt"
TRACE_ID: Final = "trace/trace_id.txt"
AUDITS: Final = "audits"

FOLDERS: Final = (
    "artifacts",
    AUDITS,
    "ci",
    "codex",
    "git",
    "patches",
    "reports",
    "results",
    "reviews",
    "tasks",
    "tests",
    "trace",
)
"""Every folder that a bundle has from its first moment on."""

REQUIRED_EVIDENCE: Final = (CONTRACT, EVENTS, PATCH, REVIEW_REPORT, TASK_RESULT, TEST_REPORT)
"""What the evidence report says is there or missing."""

EMPTY_WHERE_MISSING: Final = (
    PATCH,
    NAMES,
    GIT_BASELINE,
    GIT_PATCH,
    GIT_NAMES,
    WORKTREE_REF,
    "tests/command.txt",
    "tests/stderr.log",
    "tests/stdout.log",
    TRACE_ID,
)
"""Files that every sealed bundle has; where nothing was recorded they are empty."""

_LATEST: Final = frozenset(
    {MANIFEST, META, PATCH, NAMES, WORKTREE_REF, GIT_BASELINE, GIT_PATCH, GIT_NAMES}
)
_LATEST_FOLDERS: Final = ("reports", "tests")
_APPENDED: Final = re.compile(r"codex/[^/]+/(?:events\.jsonl|transcript\.md)")
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
MAX_DEPTH: Final = 8
MAX_PATH_CHARS: Final = 1000

_MEDIA_TYPES: Final = {
    ".json": "application/json",
    ".jsonl": "application/x-ndjson",
    ".diff": "text/x-diff",
    ".md": "text/markdown",
    ".txt": "text/plain",
    ".log": "text/plain",
}


def checked(path: str) -> str:
    """Return a path inside a bundle as it was given, or raise."""
    names = path.split("/")
    if (
        len(path) > MAX_PATH_CHARS
        or len(names) > MAX_DEPTH
        or not all(_NAME.fullmatch(name) for name in names)
    ):
        raise UsageError(
            f"{path[:200]!r} is no path inside a run bundle",
            rule="bundle.path",
            hint="names of letters, digits, '.', '_' and '-', joined with '/'",
        )
    return path


def is_latest(path: str) -> bool:
    """Whether a file holds the latest of several and is replaced until the bundle is sealed.

    What belongs to one task or attempt is written once.
    """
    return path in _LATEST or path.partition("/")[0] in _LATEST_FOLDERS


def is_appended(path: str) -> bool:
    """Whether a file grows line by line: an agent's own events, and what it said."""
    return _APPENDED.fullmatch(path) is not None


def media_type(path: str) -> str:
    """The media type that a file's name stands for."""
    name = path.rpartition("/")[2]
    return _MEDIA_TYPES.get(name[name.rfind(".") :] if "." in name else "", _UNKNOWN_TYPE)


_UNKNOWN_TYPE: Final = "application/octet-stream"
