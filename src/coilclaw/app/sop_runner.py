"""SOPs, wired: found, checked against the tools there are, run through the guard, resumed."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.agent import (
    ApprovalStore,
    Checker,
    FileWrite,
    SopDependencies,
    SopEngine,
    SopRuns,
    StageOutcome,
    check_inputs,
    folders,
    invalid,
    parse_inputs,
)
from coilclaw.app.agent_runtime import People, open_runtime
from coilclaw.app.home import now
from coilclaw.app.mcp_clients import make_guarded_call
from coilclaw.kernel import (
    ApprovalAnswer,
    ApprovalReply,
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
    from pathlib import Path

    from coilclaw.agent import (
        Approval,
        ApprovalQuestion,
        InputSpec,
        Resolution,
        RunFile,
        Sop,
        SopRun,
        ToolContext,
        TurnOutcome,
    )
    from coilclaw.app.agent_runtime import Runtime
    from coilclaw.app.config.values import Config
    from coilclaw.kernel import ApprovalRequest, Approve, Json, Redactor, ToolCall, ToolResult


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


class _Switch:
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


class Sops:
    """The SOPs of one home and one workspace."""

    def __init__(
        self,
        runtime: Runtime,
        switch: _Switch,
        attended: Attended | None,
        *,
        cancel: Cancellation | None = None,
        around: Around = lambda _, __: nullcontext(),
        asker: str = "",
    ) -> None:
        self._asker = asker
        self._runtime = runtime
        self._switch = switch
        self._attended = None if attended is None else _one_by_one(attended)
        self._cancel = Cancellation() if cancel is None else cancel
        self._around = around
        self._workspace = runtime.config.workspace_dir
        self._receipts = runtime.config.receipts.path
        guard = runtime.guard
        self._checker = Checker(guard.tools, guard.allowed, guard.validators)
        self._runs = SopRuns(runtime.home, now)

    def examine(self, name: str | None = None) -> tuple[ExaminedSop, ...]:
        """Check one SOP, or all of them."""
        home = self._runtime.home
        if name is not None:
            return (self._examined(folders.find_sop(name, home, self._workspace)),)
        return tuple(map(self._examined, folders.list_sops(home, self._workspace)))

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
        found = folders.find_sop(name, self._runtime.home, self._workspace)
        sop = self._checked(found, found.read())
        if isinstance(inputs, Mapping):
            given = check_inputs(sop.inputs, inputs)
        else:
            given = parse_inputs(sop.inputs, [valid_text(text) for text in inputs])
        file = self._runs.begin(
            sop, str(self._workspace), str(self._receipts), given, asker=self._asker
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
            engine = self._engine(self._unchanged(file.run), file)
            engine.settle(resolution)
            begun(file.id)
            return engine.go()

    def _unchanged(self, run: SopRun) -> Sop:
        """The SOP of a run, if everything is as it was when the run began."""
        if run.ending is not None:
            raise UsageError(f"the run {run.id} has ended: {run.ending}", rule="sop.ended")
        if run.workspace != valid_text(str(self._workspace)):
            message = f"the run {run.id} began in the workspace {run.workspace}"
            hint = "set workspace_dir back, or begin a new run"
            raise DeniedError(message, rule="sop.workspace", hint=hint)
        if run.receipts != valid_text(str(self._receipts)):
            message = f"the receipts of the run {run.id} are in {run.receipts}"
            hint = "set receipts.path back, or begin a new run"
            raise DeniedError(message, rule="sop.receipts", hint=hint)
        try:
            found = folders.find_sop(run.sop, self._runtime.home, self._workspace)
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
        return self._checked(found, data)

    def _checked(self, found: folders.FoundSop, data: bytes) -> Sop:
        sop, problems = self._checker.check(data, found.name)
        if sop is None:
            raise invalid(found.name, folders.FILE_NAME, problems)
        return sop

    def _examined(self, found: folders.FoundSop) -> ExaminedSop:
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
        runtime = self._runtime
        attended = self._attended
        # What all calls share is made here, once, before any thread.
        _ = runtime.tree, runtime.policy_source.places, runtime.policy_source.hash
        if any(stage.kind == "agent" for stage in sop.stages):
            _ = runtime.loop
        means = SopDependencies(
            tools=runtime.guard.tools,
            call=self._call,
            turn=self._turn,
            said=runtime.memory.conversation,
            in_place=self._is_in_place,
            book=runtime.guard.book,
            estop=runtime.guard.estop,
            approvals=open_desk(runtime.home, file.run.asker or self._asker),
            approve=None if attended is None else attended.approve,
            confirm=None if attended is None else attended.confirm,
            halt=self._cancel.cancel,
            stopped=lambda: self._cancel.reason,
        )
        return SopEngine(sop, file, means)

    def _call(self, call: ToolCall, conversation_id: str, approve: Approve) -> ToolResult:
        made = make_guarded_call(self._runtime)
        with (
            self._switch.asking(conversation_id, approve),
            link_cancellation(self._cancel) as cancel,
        ):
            return made(call, conversation_id, cancel)

    def _turn(self, message: str, conversation_id: str) -> TurnOutcome:
        runtime = self._runtime
        with ExitStack() as stack:

            def context(name: str, turn: str) -> ToolContext:
                cancel = stack.enter_context(link_cancellation(self._cancel))
                return replace(runtime.context(name, turn), cancel=cancel)

            stack.enter_context(self._around(conversation_id, self._cancel))
            loop = replace(runtime.loop, context=context)
            return loop.turn(message, conversation_id=conversation_id)

    def _is_in_place(self, tool: str, args: Mapping[str, Json]) -> bool | None:
        found = self._runtime.guard.tools[tool]
        if not isinstance(found, FileWrite):
            return None
        try:
            return found.is_in_place(args, self._runtime.context("sop", new_id("turn")))
        except CoilClawError:
            return None  # what cannot be looked at is for a person to decide


@contextmanager
def open_sops(
    home: Path,
    environ: Mapping[str, str],
    people: People,
    *,
    config: Config | None = None,
    attended: Attended | None = None,
    redactor: Redactor | None = None,
    cancel: Cancellation | None = None,
    around: Around = lambda _, __: nullcontext(),
    asker: str = "",
) -> Iterator[Sops]:
    """Open the runtime for SOPs; without ``attended`` approvals wait on the desk.

    ``cancel`` ends what runs, and ``around`` is entered around each turn of an agent. ``asker`` is
    the client that wants it, which may not approve what the run asks for.
    """
    switch = _Switch(people.approve)
    asked = People(switch, people.ask)
    with open_runtime(home, environ, asked, config=config, redactor=redactor) as runtime:
        yield Sops(runtime, switch, attended, cancel=cancel, around=around, asker=asker)


def list_sops(runtime: Runtime) -> tuple[ExaminedSop, ...]:
    """Check every SOP against the tools of a runtime that is open."""
    return Sops(
        runtime, _Switch(lambda _: ApprovalAnswer(ApprovalReply.NO, "nobody")), None
    ).examine()


def open_runs(home: Path) -> SopRuns:
    """The runs by themselves, for the commands that only look at them."""
    return SopRuns(home, now)


def open_desk(home: Path, asker: str = "") -> ApprovalStore:
    """The desk where approvals wait; ``asker`` is for whom one asks there."""
    return ApprovalStore(home, now, asker=asker)


def end_rejected_run(home: Path, approval: Approval) -> bool:
    """End the run that waits for an approval that was rejected; say whether it ended."""
    if approval.question.kind != "sop" or approval.question.tool:
        return False  # a call that was denied is a failed stage, which need not end the run
    try:
        file = open_runs(home).open(approval.question.origin)
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
        file.finished(StageOutcome(stage, "rejected", number, "", True, *told))
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
