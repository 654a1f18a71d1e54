"""``Sops``: find SOPs, check them against the tools, run them through the guard, resume them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.agent.approvals import ApprovalStore
from coilclaw.agent.sop import folders
from coilclaw.agent.sop.document import StageOutcome
from coilclaw.agent.sop.engine import SopEngine
from coilclaw.agent.sop.inputs import check_inputs, parse_inputs
from coilclaw.agent.sop.run_journal import SopRuns
from coilclaw.agent.sop.stage_attempt import SopDependencies
from coilclaw.agent.sop.validation import Checker, invalid
from coilclaw.agent.tools.file_write import FileWrite
from coilclaw.kernel import (
    CoilClawError,
    DeniedError,
    LockTimeout,
    Problem,
    UsageError,
    digest_bytes,
    valid_text,
)
from coilclaw.workspace import Cancellation, link_cancellation, new_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime
    from pathlib import Path

    from coilclaw.agent.approvals import Approval, ApprovalQuestion
    from coilclaw.agent.guarded_calls import GuardedCalls
    from coilclaw.agent.handle import TurnOutcome
    from coilclaw.agent.loop import AgentLoop
    from coilclaw.agent.memory.store import Memory
    from coilclaw.agent.sop.document import Sop
    from coilclaw.agent.sop.inputs import InputSpec
    from coilclaw.agent.sop.interruption import Resolution
    from coilclaw.agent.sop.run_journal import RunFile, SopRun
    from coilclaw.agent.tools.contract import ToolContext
    from coilclaw.kernel import ApprovalAnswer, ApprovalRequest, Approve, Json, ToolCall, ToolResult


Around: TypeAlias = "Callable[[str, Cancellation], AbstractContextManager[None]]"


@dataclass(frozen=True, slots=True)
class Attended:
    """The person at the terminal, if a run may ask one."""

    approve: Approve
    confirm: Callable[[ApprovalQuestion], bool | None]


@dataclass(frozen=True, slots=True)
class ExaminedSop:
    """A SOP that was found, and what is wrong with it."""

    name: str
    path: Path
    description: str
    stages: tuple[tuple[str, str], ...]
    """Ids and kinds."""
    problems: tuple[Problem, ...]
    inputs: tuple[InputSpec, ...] = ()


class StageApprover:
    """Whom the guard asks about a call: each tool stage has an approver of its own."""

    def __init__(self, usual: Approve) -> None:
        self._usual = usual
        self._own: dict[str, Approve] = {}

    def __call__(self, request: ApprovalRequest) -> ApprovalAnswer:
        return self._own.get(request.conversation_id, self._usual)(request)

    @contextmanager
    def asking(self, conversation_id: str, approve: Approve) -> Iterator[None]:
        self._own[conversation_id] = approve
        try:
            yield
        finally:
            del self._own[conversation_id]


def _one_by_one(attended: Attended) -> Attended:
    """Let one question at a time reach the person at the terminal."""
    mutex = threading.RLock()

    def approve(request: ApprovalRequest) -> ApprovalAnswer:
        with mutex:
            return attended.approve(request)

    def confirm(question: ApprovalQuestion) -> bool | None:
        with mutex:
            return attended.confirm(question)

    return Attended(approve, confirm)


@dataclass(frozen=True, slots=True)
class SopAgent:
    """The agent that carries out SOPs, and where it works."""

    home: Path
    workspace: Path
    receipts: Path
    calls: GuardedCalls
    approver: StageApprover
    """Whom the guard of these calls asks."""
    memory: Memory
    loop: Callable[[], AgentLoop]
    """Makes the loop, once a stage needs a model."""
    now: Callable[[], datetime]


class Sops:
    """The SOPs of one home and one workspace.

    Without ``attended`` approvals wait in the store. ``cancel`` ends what runs, and ``around`` is
    entered around each turn of a model. ``asker`` is the client that wants it, which may not
    approve what the run asks for.
    """

    def __init__(
        self,
        agent: SopAgent,
        attended: Attended | None = None,
        *,
        cancel: Cancellation | None = None,
        around: Around = lambda _, __: nullcontext(),
        asker: str = "",
    ) -> None:
        self._asker = asker
        self._agent = agent
        self._attended = None if attended is None else _one_by_one(attended)
        self._cancel = Cancellation() if cancel is None else cancel
        self._around = around
        guard = agent.calls.guard
        self._checker = Checker(guard.tools, guard.allowed, guard.validators)
        self._runs = SopRuns(agent.home, agent.now)

    def examine(self, name: str | None = None) -> tuple[ExaminedSop, ...]:
        """Check one SOP, or all of them."""
        if name is not None:
            return (self._examine(self._find(name)),)
        return tuple(map(self._examine, folders.list_sops(self._agent.home, self._agent.workspace)))

    def run(
        self,
        name: str,
        begun: Callable[[str], None] = lambda _: None,
        *,
        inputs: Mapping[str, Json] | Sequence[str] = (),
    ) -> SopRun:
        """Begin a run and go as far as it goes; ``begun`` is told its id before anything runs.

        Inputs are values by name, or texts of the form ``NAME=VALUE``.
        """
        found = self._find(name)
        sop = self._check(found, found.read())
        if isinstance(inputs, Mapping):
            given = check_inputs(sop.inputs, inputs)
        else:
            given = parse_inputs(sop.inputs, [valid_text(text) for text in inputs])
        file = self._runs.begin(
            sop, str(self._agent.workspace), str(self._agent.receipts), given, asker=self._asker
        )
        with closing(file):
            begun(file.id)
            return self._engine(sop, file).go()

    def resume(
        self,
        text: str,
        resolution: Resolution | None = None,
        begun: Callable[[str], None] = lambda _: None,
    ) -> SopRun:
        """Resume a run that waits or was interrupted; ``resolution`` says what of it counts."""
        with closing(self._runs.open(text)) as file:
            engine = self._engine(self._require_unchanged(file.run), file)
            engine.settle(resolution)
            begun(file.id)
            return engine.go()

    def _find(self, name: str) -> folders.FoundSop:
        return folders.find_sop(name, self._agent.home, self._agent.workspace)

    def _require_unchanged(self, run: SopRun) -> Sop:
        """The SOP of a run, if everything is as it was when the run began."""
        if run.ending is not None:
            raise UsageError(f"the run {run.id} has ended: {run.ending}", rule="sop.ended")
        if run.workspace != valid_text(str(self._agent.workspace)):
            message = f"the run {run.id} began in the workspace {run.workspace}"
            hint = "set workspace_dir back, or begin a new run"
            raise DeniedError(message, rule="sop.workspace", hint=hint)
        if run.receipts != valid_text(str(self._agent.receipts)):
            message = f"the receipts of the run {run.id} are in {run.receipts}"
            hint = "set receipts.path back, or begin a new run"
            raise DeniedError(message, rule="sop.receipts", hint=hint)
        try:
            found = self._find(run.sop)
            data = found.read()
        except UsageError as problem:
            raise DeniedError(
                f"the SOP {run.sop} of the run {run.id} is not what it was: {problem.message}",
                rule="sop.changed",
                hint="begin a new run",
            ) from problem
        if digest_bytes(data) != run.sop_hash:
            raise DeniedError(
                f"{found.path} has changed since the run {run.id} began",
                rule="sop.changed",
                hint="put it back as it was, or begin a new run",
            )
        return self._check(found, data)

    def _check(self, found: folders.FoundSop, data: bytes) -> Sop:
        sop, problems = self._checker.check(data, found.name)
        if sop is None:
            raise invalid(found.name, folders.FILE_NAME, problems)
        return sop

    def _examine(self, found: folders.FoundSop) -> ExaminedSop:
        try:
            sop, problems = self._checker.check(found.read(), found.name)
        except UsageError as problem:
            sop, problems = None, (Problem("", problem.message),)
        if sop is None:
            return ExaminedSop(found.name, found.path, "", (), problems)
        stages = tuple((one.id, one.kind) for one in sop.stages)
        inputs = tuple(sop.inputs.values())
        return ExaminedSop(found.name, found.path, sop.description, stages, problems, inputs)

    def _engine(self, sop: Sop, file: RunFile) -> SopEngine:
        agent, attended = self._agent, self._attended
        if any(stage.kind == "agent" for stage in sop.stages):
            agent.loop()  # made here, once, before any thread
        guard = agent.calls.guard
        means = SopDependencies(
            tools=guard.tools,
            call=self._call,
            turn=self._turn,
            said=agent.memory.conversation,
            in_place=self._is_in_place,
            book=guard.book,
            estop=guard.estop,
            approvals=ApprovalStore(agent.home, agent.now, asker=file.run.asker or self._asker),
            approve=None if attended is None else attended.approve,
            confirm=None if attended is None else attended.confirm,
            halt=self._cancel.cancel,
            stopped=lambda: self._cancel.reason,
        )
        return SopEngine(sop, file, means)

    def _call(self, call: ToolCall, conversation_id: str, approve: Approve) -> ToolResult:
        with (
            self._agent.approver.asking(conversation_id, approve),
            link_cancellation(self._cancel) as cancel,
        ):
            return self._agent.calls.call(
                call, conversation_id, lambda context: replace(context, cancel=cancel)
            )

    def _turn(self, message: str, conversation_id: str) -> TurnOutcome:
        with ExitStack() as stack:

            def context(name: str, turn: str) -> ToolContext:
                cancel = stack.enter_context(link_cancellation(self._cancel))
                return replace(self._agent.calls.context(name, turn), cancel=cancel)

            stack.enter_context(self._around(conversation_id, self._cancel))
            loop = replace(self._agent.loop(), context=context)
            return loop.turn(message, conversation_id=conversation_id)

    def _is_in_place(self, tool: str, args: Mapping[str, Json]) -> bool | None:
        calls = self._agent.calls
        found = calls.guard.tools[tool]
        if not isinstance(found, FileWrite):
            return None
        try:
            return found.is_in_place(args, calls.context("sop", new_id("turn")))
        except CoilClawError:
            return None  # a person has to decide about what cannot be looked at


def end_rejected_run(runs: SopRuns, approval: Approval) -> bool:
    """End the run that waits for an approval that was rejected; say whether it ended."""
    if approval.question.kind != "sop" or approval.question.tool:
        return False  # a call that was denied is a failed stage, which need not end the run
    try:
        file = runs.open(approval.question.origin)
    except (UsageError, LockTimeout):
        return False  # it is gone, or a process works on it and will see the answer
    with closing(file):
        run = file.run
        stage = next((name for name, one in run.waits.items() if one == approval.id), "")
        if run.ending is not None or stage not in run.attempts:
            return False
        error = f"{approval.answered_by} said no"
        number = run.attempts[stage].number
        told = (error, "approval.rejected", "", approval.id)
        file.record_outcome(StageOutcome(stage, "rejected", number, "", True, *told))
        file.end("rejected", f"{stage}: {error}")
        return True


_INPUT: Final = ("name", "type", "required", "default", "choices", "description")
_RUN: Final = ("id", "sop", "status", "sop_hash", "workspace", "begun", "ended", "reason")


def sop_record(one: ExaminedSop) -> dict[str, Json]:
    """Return what is known of a SOP."""
    return {
        "name": one.name,
        "path": str(one.path),
        "ok": not one.problems,
        "description": one.description,
        "inputs": [{name: getattr(spec, name) for name in _INPUT} for spec in one.inputs],
        "stages": [{"id": name, "kind": kind} for name, kind in one.stages],
        "problems": [
            {"key": problem.key, "line": problem.line, "message": problem.message}
            for problem in one.problems
        ],
    }


def run_record(run: SopRun, *, output_chars: int | None = None) -> dict[str, Json]:
    """Return what is known of a run; ``output_chars`` cuts what stages put out."""
    stages = [asdict(one) for one in run.outcomes.values()]
    return {
        **{name: getattr(run, name) for name in _RUN},
        "inputs": dict(run.inputs),
        "approval": run.approval,
        "approvals": list(run.waits.values()),
        "stage": "" if run.attempt is None else run.attempt.stage,
        "under_way": [
            {"id": one.stage, "attempt": one.number, "approval": run.waits.get(one.stage, "")}
            for one in run.attempts.values()
        ],
        "settlements": [asdict(one) for one in run.settlements],
        "stages": [
            {"id": one.pop("stage"), **one, "output": one["output"][:output_chars]}
            for one in stages
        ],
    }
