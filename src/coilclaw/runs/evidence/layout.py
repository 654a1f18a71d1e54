"""What a run bundle consists of: its folders, its files, and which of them may be written again.

Paths in a bundle are relative, with ``/``, and ASCII: they stand in canonical JSON as keys.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from pathlib import Path


CONTRACT: Final = "contract.json"
GIVEN: Final = "artifacts/contract.given.json"
"""The contract as the user gave it, byte for byte; ``contract.json`` is what it became."""
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


def check_bundle_path(path: str) -> str:
    """Return a path inside a bundle as it was given, or raise."""
    names = path.split("/")
    if (
        len(path) > MAX_PATH_CHARS
        or len(names) > MAX_DEPTH
        or not all(_NAME.fullmatch(name) for name in names)
    ):
        raise UsageError(
            f"{path[:200]!r} is not a path inside a run bundle",
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
    """Return the media type of a file by its name."""
    name = path.rpartition("/")[2]
    return _MEDIA_TYPES.get(name[name.rfind(".") :] if "." in name else "", _UNKNOWN_TYPE)


_UNKNOWN_TYPE: Final = "application/octet-stream"


RUNTIME_ROOT: Final = ".runtime-cache/cortexpilot"
"""Relative to the top of the repository."""
OVERRIDE: Final = "CORTEXPILOT_RUNTIME_ROOT"
_RUN_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{7,127}")


@dataclass(frozen=True, slots=True)
class RunPlaces:
    """All paths of one control root; real and absolute. Making it touches nothing."""

    repository: Path
    """The top of the user's worktree: the control root."""
    runtime: Path

    @property
    def runs(self) -> Path:
        """The run store: one bundle a directory."""
        return self.runtime / "runs"

    @property
    def worktrees(self) -> Path:
        return self.runtime / "worktrees"

    @property
    def locks(self) -> Path:
        return self.runtime / "locks"

    @property
    def snapshots(self) -> Path:
        """The store of snapshots, shared by all runs of the repository."""
        return self.runtime / "snapshots"

    @property
    def git(self) -> Path:
        """A git directory of our own, which borrows the repository's objects."""
        return self.runtime / "git"

    @property
    def homes(self) -> Path:
        """Private homes of agents, one a task: ``homes/<run_id>/<task_id>``."""
        return self.runtime / "homes"

    @property
    def setups(self) -> Path:
        """What set-up commands made, each by its key; shared by all runs."""
        return self.runtime / "setups"

    def bundle(self, run_id: str) -> Path:
        return self.runs / check_run_id(run_id)

    def active(self, run_id: str) -> Path:
        """The contract that is being worked on."""
        return self.runtime / "active" / check_run_id(run_id) / "contract.json"

    def worktree(self, run_id: str, task_id: str) -> Path:
        return self.worktrees / check_run_id(run_id) / make_segment(task_id)

    def home(self, run_id: str, task_id: str) -> Path:
        return self.homes / check_run_id(run_id) / make_segment(task_id)

    def own_worktree(self, run_id: str, name: str) -> Path:
        """A worktree of the orchestrator itself; no task's segment begins like its name."""
        return self.worktrees / check_run_id(run_id) / f"_{name}"

    def own_home(self, run_id: str, name: str) -> Path:
        """A home of the orchestrator's own commands; no task has it."""
        return self.homes / check_run_id(run_id) / f"_{name}"


def list_names(folder: Path) -> list[str]:
    """Return the names in a folder, sorted; none if the folder does not exist."""
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def is_run_id(text: str) -> bool:
    """Return whether a text is a run id: one path segment."""
    return _RUN_ID.fullmatch(text) is not None and ".." not in text


def check_run_id(run_id: str) -> str:
    """Return a run id, or raise ``UsageError``."""
    if not is_run_id(run_id):
        raise UsageError(f"{run_id[:200]!r} is not a run id", rule="run.id")
    return run_id


def make_segment(task_id: str) -> str:
    """Return a task id as one path segment; two ids never share one."""
    if is_run_id(task_id):
        return task_id
    plain = re.sub(r"[^A-Za-z0-9_-]", "-", task_id)[:64]
    return f"t-{plain}-{sha256(task_id.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"
