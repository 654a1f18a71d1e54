"""Recordings made by hand: a repository of plain git, and a trace that names its commits.

Each part may write files. The judge beside it reads ``passing.txt``: the ids of the cases that
pass, one a line; ``broken build`` in it is a build that fails.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from coilclaw.kernel.errors import EnvironmentFault
from coilclaw.traces.environments.results import Case, Result
from coilclaw.traces.evaluation.evaluation import EvaluationCache, Evaluator
from coilclaw.traces.evaluation.recorded_trace import Recording
from coilclaw.traces.trajectory.trace import (
    VERSION,
    PartRecord,
    RecordedTurn,
    RepoCheckpoint,
    SessionEnd,
    TokenUsage,
    Trace,
    TraceArtifacts,
    TraceLimits,
)
from coilclaw.workspace.git.client import Git
from coilclaw.workspace.process.cancellation import Cancellation

CASES = ("basics/get", "basics/set", "edge/empty", "durability/kill", "durability/reopen")
BUILD_FAILS = "broken build"
VANISHES = "no judge"

_QUIET = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Test",
    "GIT_AUTHOR_EMAIL": "test@coilclaw.invalid",
    "GIT_COMMITTER_NAME": "Test",
    "GIT_COMMITTER_EMAIL": "test@coilclaw.invalid",
    "GIT_AUTHOR_DATE": "2026-11-15T10:00:00Z",
    "GIT_COMMITTER_DATE": "2026-11-15T10:00:00Z",
    "PATH": "/usr/bin:/bin:/usr/local/bin",
}


def git(directory: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments],
        cwd=directory,
        env=_QUIET,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def passing(*names: str) -> dict[str, str]:
    """Files with which these cases pass."""
    return {"passing.txt": "".join(f"{name}\n" for name in names)}


def commits(work: Path, parts: Sequence[Mapping[str, str] | None]) -> list[str]:
    """Make a repository; return the commit before the first part, then that after each."""
    work.mkdir(parents=True)
    git(work, "init", "-q", "-b", "trajectory")
    git(work, "commit", "-q", "--allow-empty", "-m", "start")
    made = [git(work, "rev-parse", "HEAD")]
    for number, files in enumerate(parts, start=1):
        for name, text in (files or {}).items():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            (work / name).write_text(text)
        if files is not None:
            git(work, "add", "-A")
            git(work, "commit", "-q", "--allow-empty", "-m", f"part {number}")
        made.append(git(work, "rev-parse", "HEAD"))
    return made


def trace_of(made: Sequence[str], trajectory_id: str = "made-by-hand") -> Trace:
    """A trace of one turn a ten parts."""
    parts = tuple(_part(trajectory_id, number, made) for number in range(1, len(made)))
    turns = tuple(
        RecordedTurn(
            trajectory_id=trajectory_id,
            session_id="session",
            agent="scripted",
            agent_model="none",
            turn=start // 10 + 1,
            part_start=start + 1,
            part_end=min(start + 10, len(parts)),
            timestamp="2026-11-15T10:00:00.000Z",
            prompt="build it",
            git_commit=made[min(start + 10, len(parts))],
            repo_checkpoint=None,
            envoi_calls=(),
            session_end=None,
        )
        for start in range(0, len(parts), 10)
    )
    return Trace(
        schema_version=VERSION,
        trajectory_id=trajectory_id,
        session_id="session",
        agent="scripted",
        agent_model="none",
        started_at="2026-11-15T10:00:00.000Z",
        environment="kv_store",
        environment_version="e" * 64,
        versions={},
        limits=TraceLimits(max_parts=1000, max_turns=None, timeout_ms=None),
        artifacts=TraceArtifacts(agent_trace="agent_trace.json", repo_bundle="repo.bundle"),
        initial_commit=made[0],
        resumptions=(),
        turns=turns,
        session_end=SessionEnd(
            reason="part_limit",
            total_parts=len(parts),
            total_turns=len(turns),
            final_git_commit=made[-1],
            timestamp="2026-11-15T10:10:00.000Z",
            elapsed_ms=600_000,
            detail="",
        ),
        parts=parts,
    )


def _part(trajectory_id: str, number: int, made: Sequence[str]) -> PartRecord:
    before, after = made[number - 1], made[number]
    changed = before != after
    return PartRecord(
        trajectory_id=trajectory_id,
        session_id="session",
        agent="scripted",
        agent_model="none",
        part=number,
        turn=(number - 1) // 10 + 1,
        timestamp="2026-11-15T10:00:00.000Z",
        duration_ms=500,
        elapsed_ms=number * 1000,
        role="assistant",
        part_type="patch" if changed else "text",
        item_type="write" if changed else "message",
        summary=f"what part {number} did",
        git_commit=after,
        repo_checkpoint=RepoCheckpoint(
            commit_before=before,
            commit_after=after,
            committed=True,
            changed_files=("passing.txt",),
            numstat=(),
        )
        if changed
        else None,
        envoi_calls=(),
        testing_state=None,
        content=f"what part {number} did, at length",
        files=(),
        token_usage=TokenUsage(input_tokens=100, output_tokens=10),
    )


def recording(
    folder: Path, parts: Sequence[Mapping[str, str] | None], trajectory_id: str = "made-by-hand"
) -> Recording:
    """Make the repository and the trace, and open them."""
    made = commits(folder / "work", parts)
    return Recording.of(trace_of(made, trajectory_id), Git(folder / "work" / ".git", foreign=True))


class FakeJudge:
    """Judges by ``passing.txt``, and counts how often it was asked, by whom at once."""

    def __init__(self, cases: Sequence[str] = CASES) -> None:
        self.cases = tuple(cases)
        self.asked: list[str] = []
        self.most = 0
        self._now = 0
        self._guard = threading.Lock()

    def test(self, submission: Path, path: str = "", *, cancel: Cancellation) -> Result:
        del cancel
        with self._guard:
            self.asked.append(path)
            self._now += 1
            self.most = max(self.most, self._now)
        try:
            return self._result(submission, path)
        finally:
            with self._guard:
                self._now -= 1

    def _result(self, submission: Path, path: str) -> Result:
        file = submission / "passing.txt"
        names = file.read_text().split("\n") if file.exists() else []
        if VANISHES in names:
            raise EnvironmentFault("the judge is gone", rule="test.judge")
        error = "build.sh ended with exit code 1" if BUILD_FAILS in names else None
        chosen = [
            name for name in self.cases if not path or name == path or name.startswith(f"{path}/")
        ]
        return Result.build(
            [
                Case(
                    id=name,
                    status="passed" if name in names and not error else "failed",
                    duration_ms=1,
                )
                for name in chosen
            ],
            path,
            error,
        )


def court(folder: Path, judge: FakeJudge, *, jobs: int = 2, fresh: bool = False) -> Evaluator:
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    return Evaluator(
        "kv_store", "e" * 64, judge, EvaluationCache(folder / "cache"), scratch, jobs, fresh
    )
