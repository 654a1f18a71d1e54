"""``CodeCommitRunner``: the repair loop as a runner: ask, apply, build, repair.

The instruction is the query, the worktree is the tree, and ``build.sh`` runs in the sandbox of the
assignment: it is the one command, so that a contract without a shell cannot be worked on this way.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.changes import unified_diff
from coilclaw.commit import BUILD, REPAIRS, CommitRun, Interrupts, Project, RunLog, rollup
from coilclaw.kernel import Part, canonical_json
from coilclaw.policy import KEY_FILES
from coilclaw.runners import agent_answer, contract_policy
from coilclaw.runners.builtin import add_usage
from coilclaw.runners.runner import Deadline, Ending
from coilclaw.runners.runner_thread import perform_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from coilclaw.changes import Plan
    from coilclaw.commit import Build, CommitOutcome
    from coilclaw.kernel import ChatResponse, Provider, Usage
    from coilclaw.policy import SecretRedactor
    from coilclaw.runners.runner import Assignment, Means, Status
    from coilclaw.runners.runner_thread import RunnerThread

BUILD_TIMEOUT_S: Final = 900.0
MAX_DIFF_CHARS: Final = 2**20


def default_state(assignment: Assignment) -> Path:
    """Return a directory of the agent's private home."""
    return assignment.home / "code-commit"


@dataclass(frozen=True, slots=True)
class CodeCommitRunner:
    """Performs with one model."""

    provider: Provider
    model: str
    redactor: SecretRedactor
    build_timeout_s: float = BUILD_TIMEOUT_S
    repairs: int = REPAIRS
    state: Callable[[Assignment], Path] = default_state
    name: str = "code-commit"

    def perform(self, assignment: Assignment, means: Means) -> Generator[Part, None, Ending]:
        """Edit, build and repair."""
        problem = _find_refusal(assignment, means)
        if problem:
            return Ending(
                "failed", problem, agent_answer.task_result(assignment.task_id, "", failure=problem)
            )
        deadline = Deadline.of(assignment.budget)
        session = _Session(self, assignment, means)
        return (yield from perform_in_thread(session.work, means, deadline, assignment.budget))


def _find_refusal(assignment: Assignment, means: Means) -> str:
    """Return why the runner cannot work: no build, or the build may not run."""
    build = assignment.directory / BUILD
    if not build.is_file() or not os.access(build, os.X_OK):
        return f"{BUILD} does not exist or is not executable"
    if assignment.filesystem != "workspace-write":
        return "the contract says filesystem = read-only, and code-commit writes"
    asked = contract_policy.command_request(
        assignment.task_id, (f"./{BUILD}",), directory=str(assignment.directory)
    )
    contained = contract_policy.is_contained(assignment, means)
    return contract_policy.settle(assignment.shell, asked, means.approve, contained=contained)


@dataclass(slots=True)
class _Session:
    """One performance."""

    runner: CodeCommitRunner
    assignment: Assignment
    means: Means

    def work(self, stage: RunnerThread) -> Ending:
        """Run the workflow in the thread of the agent."""
        from coilclaw.workspace import Root, TreeState

        assignment, runner = self.assignment, self.runner
        state = runner.state(assignment)
        logs = state / "logs"
        logs.mkdir(parents=True, exist_ok=True, mode=0o700)
        watcher = _Watcher(stage, self.means.on_usage)
        with ExitStack() as stack:
            root = stack.enter_context(Root(assignment.directory))
            tree = TreeState.of(state, root.path)
            cancel = stack.enter_context(stage.calling())
            codebase = rollup.roll_up(root, tree, KEY_FILES).text
            attempts = assignment.budget.attempts
            # The caller who watches stops the run; signals are not ours in this thread.
            interrupts = Interrupts()
            interrupts.cancellation = cancel
            outcome = CommitRun(
                project=Project(root.path, assignment.instruction, codebase),
                root=root,
                state=tree,
                log=RunLog(logs, runner.redactor),
                provider=runner.provider,
                model=assignment.model or runner.model,
                environ=assignment.environ,
                interrupts=interrupts,
                observer=watcher,
                # The end of the budget comes from the stage, so that it is not taken for a build's.
                build_timeout_s=runner.build_timeout_s,
                run_id=assignment.task_id,
                repairs=runner.repairs if attempts is None else max(attempts - 1, 0),
                sandbox=assignment.sandbox,
                support=self.means.support,
            ).go()
        return self._ending(outcome, watcher)

    def _ending(self, outcome: CommitOutcome, watcher: _Watcher) -> Ending:
        task_id = self.assignment.task_id
        if outcome.status == "provider_failed" and outcome.problem is not None:
            raise outcome.problem
        tries = len(outcome.attempts)
        passed = outcome.status == "passed"
        why = "" if passed else f"the build did not pass in {tries} attempts"
        summary = why or f"the build passed at attempt {tries}"
        result = agent_answer.task_result(task_id, summary, failure=why)
        status: Status = "done" if passed else "failed"
        return Ending(status, why, result, watcher.text, usage=watcher.usage)


@dataclass(slots=True)
class _Watcher:
    """Makes parts of what the run shows."""

    stage: RunnerThread
    on_usage: Callable[[Usage], None]
    text: str = ""
    usage: Usage | None = None
    tries: int = field(default=0)

    def line(self, text: str, style: str | None = None) -> None:  # noqa: ARG002 - there are no colours
        self.stage.say(Part("text", text=text.strip()))

    def attempt(self, number: int, name: str) -> None:  # noqa: ARG002 - the parts say it all
        self.tries = number

    def asking(self, model: str) -> None:  # noqa: ARG002 - the answer names it
        self.stage.check()

    def answered(self, response: ChatResponse, seconds: float) -> None:  # noqa: ARG002
        self.text = response.final_text
        self.usage = add_usage(self.usage, response.usage)
        if self.usage is not None:
            self.on_usage(self.usage)
        self.stage.say(Part("text", text=self.text, usage=response.usage))

    def applied(self, plan: Plan, change_id: str) -> None:
        files = tuple(str(change.path) for change in plan.changes)
        diff = "\n".join(unified_diff.diff_plan(plan))[:MAX_DIFF_CHARS]
        self.stage.say(
            Part("patch", tool="apply_changes", call_id=change_id, text=diff, files=files)
        )

    def not_applied(self, reason: str) -> None:
        self.stage.say(Part("tool", tool="apply_changes", input="{}", output=reason, exit_code=1))

    def building(self) -> None:
        self.stage.check()

    def output(self, data: bytes) -> None:
        """Ignore it: ``built`` gets the whole output."""

    def built(self, build: Build) -> None:
        self.stage.say(
            Part(
                "tool",
                tool="build",
                call_id=f"build-{self.tries}",
                input=canonical_json.render_json({"argv": [f"./{BUILD}"]}),
                output=build.text,
                exit_code=build.exit_code,
            )
        )
