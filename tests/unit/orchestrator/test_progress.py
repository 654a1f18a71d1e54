"""What the events of a run come to: its tasks, its approvals, and how it ended."""

from __future__ import annotations

from typing import Any

from coilclaw.runs.evidence.progress import (
    PendingApproval,
    RunProgress,
    RunState,
    TaskProgress,
    fold_events,
)


def event(kind: str, task_id: str | None = None, /, **payload: Any) -> dict[str, Any]:
    return {"event_type": kind, "task_id": task_id, "payload": payload}


def contract(task_id: str, parent: str = "", *replaces: str) -> dict[str, Any]:
    return event(
        "CONTRACT_WRITTEN",
        task_id,
        path=f"tasks/{task_id}.json",
        sha256="0",
        parent_task_id=parent,
        replaces=list(replaces),
    )


def moved(origin: str, target: str, **more: Any) -> dict[str, Any]:
    return event("STATE_TRANSITION", trigger="any", **{"from": origin, "to": target}, **more)


def accepted(task_id: str, status: str = "SUCCESS") -> dict[str, Any]:
    return event(
        "TASK_RESULT_RECORDED", task_id, status=status, snapshot="s", tree="t", patch_sha256="p"
    )


def names(progress: RunProgress) -> list[str]:
    return [task.task_id for task in progress.active]


def test_no_events_are_a_run_that_begins() -> None:
    progress = fold_events([])
    assert progress == RunProgress()
    assert (progress.root, progress.active, progress.working) == (None, (), ())


def test_one_contract_is_the_root_and_the_work() -> None:
    progress = fold_events([contract("a")])
    assert progress.root == TaskProgress("a", "tasks/a.json", "")
    assert names(progress) == ["a"]


def test_the_contract_that_was_split_is_no_work() -> None:
    progress = fold_events([contract("a"), contract("a-x", "a"), contract("a-y", "a")])
    assert progress.root is not None
    assert progress.root.task_id == "a"
    assert names(progress) == ["a-x", "a-y"]


def test_a_repair_stands_where_the_repaired_work_stood() -> None:
    progress = fold_events(
        [
            contract("a"),
            contract("a-x", "a"),
            contract("a-y", "a"),
            accepted("a-x"),
            contract("a-x-fix-1", "a-x", "a-x"),
        ]
    )
    assert names(progress) == ["a-x-fix-1", "a-y"]
    assert [task.task_id for task in progress.working] == ["a-x", "a-y", "a-x-fix-1"]
    assert progress.tasks["a-x"].state == "superseded"


def test_one_repair_of_all_takes_the_place_of_all() -> None:
    progress = fold_events(
        [
            contract("a"),
            contract("a-x", "a"),
            contract("a-y", "a"),
            contract("a-fix-1", "a", "a-x", "a-y"),
            contract("a-fix-2", "a-fix-1", "a-fix-1"),
        ]
    )
    assert names(progress) == ["a-fix-2"]


def test_a_round_of_repairs_counts_once_and_forgets_the_candidate() -> None:
    candidate = event("CANDIDATE_PREPARED", commit="c", tree="t")
    tested = event("TEST_RESULT", status="FAIL", path="ci/x")
    before = [contract("a"), accepted("a"), candidate, tested]
    progress = fold_events([*before, moved("S4_TEST", "S5_FIX", failures=["red"], blamed=["a"])])
    assert (progress.attempt, progress.failures, progress.blamed) == (0, ("red",), ("a",))
    assert progress.candidate
    assert progress.tested
    progress = fold_events(
        [*before, moved("S4_TEST", "S5_FIX", failures=["red"]), moved("S5_FIX", "S2_WORKER")]
    )
    assert (progress.attempt, progress.state) == (1, RunState.WORKER)
    assert (progress.candidate, progress.tested) == ({}, {})
    assert progress.failures == ("red",)


def test_a_new_candidate_is_not_tested() -> None:
    progress = fold_events(
        [
            event("CANDIDATE_PREPARED", commit="c", tree="t"),
            event("TEST_RESULT", status="PASS", path="ci/x"),
            event("CANDIDATE_PREPARED", commit="d", tree="u"),
        ]
    )
    assert progress.tested == {}


def test_only_success_is_accepted() -> None:
    for status in ("FAILED", "BLOCKED", "SKIPPED", "success", ""):
        progress = fold_events([contract("a"), accepted("a", status)])
        assert progress.tasks["a"].state == "rejected"
    assert fold_events([contract("a"), accepted("a")]).tasks["a"].state == "accepted"


def test_an_answer_settles_what_was_asked_and_nothing_else() -> None:
    asked = event(
        "HUMAN_APPROVAL_REQUIRED", "a", approval_id="i", digest="d", kind="network", reason="r"
    )
    assert fold_events([asked]).waiting == {"i": PendingApproval("i", "d", "network", "r", "a")}
    other = event("HUMAN_APPROVAL_COMPLETED", approval_id="other", approved=True, by="me")
    assert fold_events([asked, other]).approvals == {}
    for approved, answer in ((True, True), (False, False), ("yes", False), (1, False)):
        said = event("HUMAN_APPROVAL_COMPLETED", approval_id="i", approved=approved, by="me")
        progress = fold_events([asked, said])
        assert (progress.waiting, progress.approvals) == ({}, {"d": answer})
    silent = event("HUMAN_APPROVAL_TIMEOUT", approval_id="i")
    assert fold_events([asked, silent]).approvals == {"d": False}


def test_how_a_run_failed_is_remembered() -> None:
    progress = fold_events([moved("S0_PM", "FAILED", failures=["no"], outcome="denied")])
    assert (progress.state, progress.outcome) == (RunState.FAILED, "denied")


def test_a_run_that_waited_may_begin_at_a_later_commit() -> None:
    created = event("RUN_CREATED", baseline_commit="a", policy_sha256="p", branch="main")
    awaited = event("LOCKS_AWAITED", paths=["x"], holders=[], since="")
    progress = fold_events([created, awaited])
    assert (progress.queued, progress.moved, progress.locked) == (True, False, False)
    moving = {"from": "a", "baseline_commit": "b", "policy_sha256": "q"}
    progress = fold_events([created, awaited, event("BASELINE_MOVED", **moving)])
    assert progress.moved
    assert progress.created == {"baseline_commit": "b", "policy_sha256": "q", "branch": "main"}
