"""Bundles of runs that never took place, made of the real records by the real writers.

Two tasks, one fix: the first task's work fails a test, a child contract repairs it, the second
attempt is reviewed and passes. Nothing but files is made: no git, no process.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from coilclaw.kernel.atomic_file import create_private
from coilclaw.kernel.canonical_json import digest_bytes, hash_json
from coilclaw.kernel.checkpoint import SigningKey
from coilclaw.kernel.messages import Json
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.contracts.manifest import RunManifest
from coilclaw.runs.contracts.records import NEXT, ArtifactRef
from coilclaw.runs.contracts.task_contract import TaskContract
from coilclaw.runs.evidence import layout
from coilclaw.runs.evidence.bundle import Bundle
from coilclaw.runs.evidence.event_log import EventLog
from coilclaw.runs.evidence.patch_names import name_only
from coilclaw.runs.evidence.seal import seal_bundle

KEY = bytes(range(32))
RUN_ID = "run_20260512_140000_0123456789abcdef"
TASK = "task-root-1"
CHILD = "task-root-1-fix-1"
BASELINE = "1" * 40
CANDIDATE = "2" * 40
TREE = "3" * 40
SNAPSHOT = "4" * 40
TRACE = "trace-0123456789abcdef"


def patch_of(path: str, text: str = "two") -> bytes:
    """A patch that changes one line of one file."""
    return (
        f"diff --git a/{path} b/{path}\nindex {'a' * 40}..{'b' * 40} 100644\n"
        f"--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-one\n+{text}\n"
    ).encode()


def unredacted(text: str) -> str:
    return text


@dataclass
class Clock:
    """A second passes between any two looks."""

    now: datetime = datetime(2026, 5, 12, 14, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


def contract_json(
    task_id: str = TASK, parent: str | None = None, allowed: tuple[str, ...] = ("src/app",)
) -> dict[str, Json]:
    agent: dict[str, Json] = {"role": "WORKER", "agent_id": "worker-1"}
    value: dict[str, Json] = {
        "task_id": task_id,
        "task_type": "IMPLEMENT",
        "owner_agent": {"role": "TECH_LEAD", "agent_id": "tech-lead-1"},
        "assigned_agent": agent,
        "inputs": {"spec": "Make one into two — schön.", "artifacts": []},
        "required_outputs": [{"name": "patch", "type": "patch", "acceptance": "it applies"}],
        "allowed_paths": list(allowed),
        "forbidden_actions": [],
        "acceptance_tests": [
            {"name": "unit", "cmd": "pytest -q 'tests/a b'", "must_pass": True},
            {"name": "lint", "cmd": "ruff check .", "must_pass": False},
        ],
        "tool_permissions": {
            "filesystem": "workspace-write",
            "shell": "never",
            "network": "deny",
            "mcp_tools": ["codex"],
        },
        "timeout_retry": {"timeout_sec": 900, "max_retries": 1, "retry_backoff_sec": 0},
        "rollback": {"strategy": "worktree_drop", "baseline_ref": BASELINE},
        "evidence_links": [],
        "log_refs": {"run_id": RUN_ID, "paths": {}},
        "mcp_tool_set": ["codex"],
    }
    if parent is not None:
        value["parent_task_id"] = parent
    return TaskContract.of(value).json()


@dataclass
class World:
    """One run's bundle, its log and its key, in a temporary directory."""

    root: Path
    run_id: str = RUN_ID
    redact: Callable[[str], str] = unredacted
    clock: Clock = field(default_factory=Clock)
    signing_key: SigningKey | None = None
    allowed: tuple[str, ...] = ("src/app",)
    text: str = "two"
    candidate_commit: str = CANDIDATE
    baseline_commit: str = BASELINE

    def __post_init__(self) -> None:
        self.key_path = self.root / "home" / "journal.key"
        self.key_path.parent.mkdir(parents=True, exist_ok=True)
        create_private(self.key_path, KEY)
        self.directory = self.root / "runs" / self.run_id
        self.bundle = Bundle(self.directory, self.redact)
        self.log = self.new_log()

    def new_log(self) -> EventLog:
        return EventLog(
            self.directory / layout.EVENTS,
            self.run_id,
            self.key_path,
            self.redact,
            self.clock,
            trace_id=TRACE,
        )

    def tell(
        self,
        kind: EventType,
        task: str | None = None,
        attempt: int | None = None,
        **payload: object,
    ) -> None:
        self.log.append(
            kind,
            {key.rstrip("_"): value for key, value in payload.items()},
            task_id=task,
            attempt=attempt,
        )

    def begin(self) -> None:
        """Everything up to the first worker."""
        self.bundle.create()
        contract = self.contract()
        self.tell(
            EventType.RUN_CREATED,
            contract_sha256=hash_json(contract),
            source="contract",
            baseline_commit=self.baseline_commit,
            runner="scripted",
            policy_sha256="5" * 64,
        )
        self.bundle.write_json(layout.CONTRACT, contract)
        self.bundle.write_text(layout.GIT_BASELINE, self.baseline_commit + "\n")
        self.bundle.write_text(layout.TRACE_ID, TRACE + "\n")
        self.bundle.write_json(layout.META, {"python": "3.11", "temperature": 0.5})
        self.move("S0_PM", "S1_TECH_LEAD", "contract_accepted")
        self.task(TASK, contract)
        self.move("S1_TECH_LEAD", "S2_WORKER", "split_accepted")

    def contract(self, task_id: str = TASK, parent: str | None = None) -> dict[str, Json]:
        return contract_json(task_id, parent, self.allowed)

    def task(self, task_id: str, contract: Mapping[str, Json]) -> None:
        kept = self.bundle.write_json(f"tasks/{task_id}.json", contract)
        self.tell(
            EventType.CONTRACT_WRITTEN,
            task_id,
            path=kept.path,
            sha256=kept.sha256,
            parent_task_id=contract.get("parent_task_id"),
        )

    def move(self, origin: str, target: str, trigger: str) -> None:
        self.tell(EventType.STATE_TRANSITION, from_=origin, to=target, trigger=trigger)

    def gate(
        self, kind: EventType, gate: str, task: str | None, attempt: int, *, passed: bool = True
    ) -> None:
        violations = [] if passed else [f"{gate}.rule: it does not hold"]
        self.tell(kind, task, attempt, gate=gate, passed=passed, violations=violations, facts="{}")

    def work(self, task_id: str, attempt: int, patch: bytes) -> None:
        """One attempt of a worker, whose diff is in order."""
        self.tell(
            EventType.TASK_STARTED,
            task_id,
            attempt,
            runner="scripted",
            snapshot=SNAPSHOT,
            tree=TREE,
        )
        self.bundle.append(f"codex/{task_id}/events.jsonl", '{"type":"part"}')
        self.bundle.append(f"codex/{task_id}/transcript.md", "It said something.")
        self.bundle.write_text(f"codex/{task_id}/thread_id.txt", "thread-1\n")
        self.gate(EventType.DIFF_GATE_RESULT, "diff_gate", task_id, attempt)
        kept = self.bundle.write_bytes(f"patches/{task_id}.diff", patch, redact=False)
        names = self.bundle.write_bytes(
            f"results/{task_id}/diff_name_only.txt", name_only(patch), redact=False
        )
        gates: dict[str, Json] = {"diff_gate": {"passed": True, "violations": []}}
        result = self.bundle.write_json(
            f"results/{task_id}/result.json",
            self.result(task_id, attempt, kept, names, gates, self.baseline_commit),
        )
        self.tell(
            EventType.TASK_RESULT_RECORDED,
            task_id,
            attempt,
            status="SUCCESS",
            snapshot=SNAPSHOT,
            tree=TREE,
            patch_sha256=kept.sha256,
            path=result.path,
            sha256=result.sha256,
        )

    def result(
        self,
        task_id: str,
        attempt: int,
        patch: ArtifactRef,
        names: ArtifactRef,
        gates: dict[str, Json],
        head: str,
    ) -> dict[str, Json]:
        return {
            "run_id": self.run_id,
            "task_id": task_id,
            "attempt": attempt,
            "producer": {"role": "WORKER", "agent_id": "worker-1"},
            "status": "SUCCESS",
            "started_at": "2026-05-12T14:00:00.000000Z",
            "finished_at": "2026-05-12T14:00:00.000000Z",
            "summary": "Done.",
            "artifacts": [patch.json()],
            "git": {
                "baseline_ref": self.baseline_commit,
                "head_ref": head,
                "changed_files": names.json(),
                "patch": patch.json(),
            },
            "gates": gates,
            NEXT: {"suggested_action": "merge", "notes": ""},
        }

    def candidate(self, patch: bytes) -> None:
        """Put together what was accepted."""
        self.bundle.write_bytes(layout.PATCH, patch, redact=False)
        self.bundle.write_bytes(layout.GIT_PATCH, patch, redact=False)
        self.bundle.write_bytes(layout.NAMES, name_only(patch), redact=False)
        self.bundle.write_bytes(layout.GIT_NAMES, name_only(patch), redact=False)
        self.tell(
            EventType.CANDIDATE_PREPARED,
            commit=self.candidate_commit,
            tree=TREE,
            snapshot=SNAPSHOT,
            tasks=[TASK],
        )

    def review(self, task_id: str, attempt: int) -> None:
        self.gate(EventType.REVIEWER_GATE_RESULT, "reviewer_gate", task_id, attempt)
        report: dict[str, Json] = {
            "run_id": self.run_id,
            "task_id": task_id,
            "attempt": attempt,
            "reviewer": {"role": "REVIEWER", "agent_id": "reviewer-1"},
            "reviewed_at": "2026-05-12T14:00:30.000000Z",
            "verdict": "PASS",
            "summary": "Fine.",
            "scope_check": {"passed": True, "violations": []},
            "evidence": [],
            "produced_diff": False,
            "findings": [{"severity": "non_blocking", "message": "A name could be better."}],
        }
        self.bundle.write_json(layout.REVIEW_REPORT, report)
        kept = self.bundle.write_json(f"reviews/{task_id}.json", report)
        self.tell(
            EventType.REVIEW_RESULT,
            task_id,
            attempt,
            verdict="PASS",
            path=kept.path,
            sha256=kept.sha256,
        )

    def tests(self, task_id: str, attempt: int, *, passed: bool) -> None:
        out = self.bundle.write_text(f"ci/{task_id}/stdout-{attempt}.log", f"passed: {passed}\n")
        err = self.bundle.write_text(f"ci/{task_id}/stderr-{attempt}.log", "")
        self.bundle.write_text("tests/command.txt", "pytest -q 'tests/a b'\nruff check .\n")
        self.bundle.write_text("tests/stdout.log", f"passed: {passed}\n")
        self.bundle.write_text("tests/stderr.log", "")
        ran: list[tuple[str, list[Json], bool, int]] = [
            ("unit", ["pytest", "-q", "tests/a b"], True, 0 if passed else 1),
            ("lint", ["ruff", "check", "."], False, 1),
        ]
        report: dict[str, Json] = {
            "run_id": self.run_id,
            "task_id": task_id,
            "attempt": attempt,
            "runner": {"role": "ORCHESTRATOR", "agent_id": "orchestrator"},
            "started_at": "2026-05-12T14:00:30.000000Z",
            "finished_at": "2026-05-12T14:00:31.000000Z",
            "status": "PASS" if passed else "FAIL",
            "commands": [
                {
                    "name": name,
                    "cmd_argv": argv,
                    "must_pass": must_pass,
                    "timeout_sec": 60,
                    "exit_code": code,
                    "duration_sec": 0.25,
                    "stdout": out.json(),
                    "stderr": err.json(),
                }
                for name, argv, must_pass, code in ran
            ],
            "artifacts": [],
        }
        self.bundle.write_json(layout.TEST_REPORT, report)
        kept = self.bundle.write_json(f"ci/{task_id}/report-{attempt}.json", report)
        self.gate(EventType.TESTS_GATE_RESULT, "tests_gate", task_id, attempt, passed=passed)
        self.tell(
            EventType.TEST_RESULT,
            task_id,
            attempt,
            status=report["status"],
            path=kept.path,
            sha256=kept.sha256,
            tree=TREE,
        )

    def finish(self, status: str = "SUCCESS", reason: str = "") -> None:
        """The result of the whole run, and its end."""
        if status == "SUCCESS":
            gates: dict[str, Json] = {
                gate: {"passed": True, "violations": []}
                for gate in ("diff_gate", "reviewer_gate", "tests_gate")
            }
            self.bundle.write_json(
                layout.TASK_RESULT,
                self.result(
                    TASK,
                    1,
                    self.bundle.artifact(layout.PATCH),
                    self.bundle.artifact(layout.NAMES),
                    gates,
                    self.candidate_commit,
                ),
            )
        self.tell(EventType.RUN_FINISHED, status=status, reason=reason, merge="not_requested")

    def play(self) -> None:
        """A whole run: tests fail once, a child contract repairs, and all is well."""
        first, second = patch_of("src/app/a.py"), patch_of("src/app/a.py", self.text)
        self.begin()
        self.work(TASK, 0, first)
        self.move("S2_WORKER", "S3_REVIEWER", "work_accepted")
        self.candidate(first)
        self.review(TASK, 0)
        self.move("S3_REVIEWER", "S4_TEST", "review_passed")
        self.tests(TASK, 0, passed=False)
        self.move("S4_TEST", "S5_FIX", "tests_failed")
        self.tell(
            EventType.FIX_LOOP_TRIGGERED,
            TASK,
            0,
            child_task_id=CHILD,
            reason="tests failed",
            retries_left=0,
        )
        self.task(CHILD, self.contract(CHILD, TASK))
        self.move("S5_FIX", "S2_WORKER", "fix_contracted")
        self.work(CHILD, 1, second)
        self.move("S2_WORKER", "S3_REVIEWER", "work_accepted")
        self.candidate(second)
        self.review(CHILD, 1)
        self.move("S3_REVIEWER", "S4_TEST", "review_passed")
        self.tests(CHILD, 1, passed=True)
        self.gate(EventType.REVIEWER_GATE_RESULT, "reviewer_gate", TASK, 1)
        self.gate(EventType.DIFF_GATE_RESULT, "diff_gate", TASK, 1)
        self.gate(EventType.TESTS_GATE_RESULT, "tests_gate", TASK, 1)
        self.move("S4_TEST", "S6_DONE", "tests_passed")
        self.finish()

    def facts(self, status: str = "SUCCESS", reason: str = "") -> dict[str, Json]:
        """The manifest, as far as the engine knows it."""
        contract = self.bundle.artifact(f"tasks/{TASK}.json").json()
        facts: dict[str, Json] = {
            "run_id": self.run_id,
            "task_id": TASK,
            "created_at": "2026-05-12T14:00:00.000000Z",
            "status": status,
            "user_request": "Make one into two — schön.",
            "trace_id": TRACE,
            "repo": {"root": "/repo", "baseline_ref": self.baseline_commit},
            "versions": {"contracts_schema": "v1", "orchestrator": "0"},
            "model": {"id": "scripted", "temperature": 1.0, "top_p": 0.25},
            "tasks": [
                {
                    "task_id": TASK,
                    "role": "WORKER",
                    "status": "SUCCESS" if status == "SUCCESS" else "FAILED",
                    "contract": contract,
                }
            ],
            "merge": {"status": "not_requested"},
        }
        if reason:
            facts["failure_reason"] = reason
        return facts

    def seal(self, status: str = "SUCCESS", reason: str = "") -> RunManifest:
        return seal_bundle(
            self.bundle, self.log, self.facts(status, reason), signing_key=self.signing_key
        )

    def copied(self, root: Path) -> World:
        """The same run at the same moment, in another place: quicker than to play it again."""
        self.log.close()
        shutil.copytree(self.directory, root / "runs" / self.run_id)
        return replace(self, root=root, clock=Clock(self.clock.now))

    def seal_quietly(self) -> None:
        """Seal, in a child that is about to be killed."""
        self.seal()


def sealed(root: Path, **options: object) -> World:
    """A whole run, played and sealed."""
    world = World(root, **options)  # type: ignore[arg-type]  # handed on as they are
    world.play()
    world.seal()
    return world


def picture(directory: Path) -> dict[str, tuple[int, str]]:
    """Everything in a directory: its mode, and the hash of its content or where it leads."""
    found: dict[str, tuple[int, str]] = {}
    for path in sorted(directory.rglob("*")):
        status = path.lstat()
        what = str(path.readlink()) if path.is_symlink() else ""
        if path.is_file() and not path.is_symlink():
            what = digest_bytes(path.read_bytes())
        found[str(path.relative_to(directory))] = (status.st_mode, f"{what} {status.st_mtime_ns}")
    return found
