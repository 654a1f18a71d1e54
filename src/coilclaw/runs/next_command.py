"""The command to type next, quoted for a shell."""

from __future__ import annotations

import os
import shlex
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from coilclaw.runs.engine.run_engine import RunOutcome
    from coilclaw.runs.run_failures import Failures
    from coilclaw.runs.run_list import ListedRun


def command(*words: str, repo: str | None = None) -> str:
    """Return a command of ours as one line; ``repo`` is what the user gave as ``--repo``."""
    flag = () if repo in {None, "."} else ("--repo", as_path(repo or ""))
    return shlex.join(("coilclaw", *words, *flag))


def as_path(path: str | os.PathLike[str]) -> str:
    """Return a path that no command parses as an option."""
    text = os.fspath(path)
    return f"./{text}" if text.startswith("-") else text


def after_run(outcome: RunOutcome, *, repo: str | None, contract: str | None = None) -> str:
    """Return what to type once a run has ended or waits; ``contract`` is the file it came from."""
    run_id = outcome.run_id
    match outcome.status:
        case "paused" if outcome.question:
            return answer(run_id, repo=repo)
        case "paused":
            return resume(run_id, outcome.waiting, repo=repo)
        case "passed" if outcome.merge == "pending":
            return command("runs", "apply", run_id, repo=repo)
        case "passed":
            return command("runs", "verify", run_id, repo=repo)
        case "invalid" if contract not in {None, "", "-"}:
            return command("contract", "validate", as_path(contract or ""), repo=repo)
        case _:
            return command("runs", "show", run_id, repo=repo)


def after_listing(one: ListedRun, failures: Failures, home: Path, *, repo: str) -> str:
    """Return the command that comes next for a run as it stands; empty where nothing is left."""
    from coilclaw.agent import ApprovalStore

    if one.standing == "paused" and not one.waiting:
        return answer(one.run_id, repo=repo)
    if one.standing in {"paused", "interrupted", "sealing"}:
        store = ApprovalStore(home, lambda: datetime.now().astimezone())
        pending = {each.id for each in store.list()} if one.waiting else set()
        return resume(one.run_id, [name for name in one.waiting if name in pending], repo=repo)
    if one.merge == "pending":
        return command("runs", "apply", one.run_id, repo=repo)
    return inspect_failure(one.run_id, failures, repo=repo) if one.standing == "failed" else ""


def inspect_failure(run_id: str, failures: Failures, *, repo: str) -> str:
    """Return the command that shows more about a failed run than ``runs show`` does."""
    if failures.commands:
        return command("runs", "log", run_id, repo=repo)
    if any(each.gate == "diff_gate" for each in failures.refusals):
        return command("runs", "diff", run_id, "--rejected", repo=repo)
    return command("runs", "events", run_id, repo=repo)


def answer(run_id: str, *, repo: str | None) -> str:
    """Return how to resume a run whose planner asked a question."""
    return command("runs", "resume", run_id, "--answer", "YOUR ANSWER", repo=repo)


def resume(run_id: str, waiting: Collection[str], *, repo: str | None) -> str:
    """Return how to give the approvals that a run waits for, and resume it."""
    asked = [command("approve", name) for name in waiting]
    return " && ".join((*asked, command("runs", "resume", run_id, repo=repo)))
