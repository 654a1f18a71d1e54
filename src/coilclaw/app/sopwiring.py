"""SOPs, wired: found, checked against the tools there are, run through the guard, resumed."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

from coilclaw.app.agentwiring import People, open_runtime
from coilclaw.app.mcpwiring import guarded
from coilclaw.config.locate import lines_of
from coilclaw.domain.canonical import digest
from coilclaw.domain.toolcalls import Answer, Reply
from coilclaw.errors import CoilClawError, DeniedError, LockTimeout, UsageError
from coilclaw.runtime.approvals import Desk
from coilclaw.runtime.identity import new_id
from coilclaw.sop import folders
from coilclaw.sop.engine import Engine
from coilclaw.sop.inputs import check_inputs, parse_inputs
from coilclaw.sop.means import Means
from coilclaw.sop.outcome import Outcome
from coilclaw.sop.problem import Problem, invalid
from coilclaw.sop.runfile import Runs, valid
from coilclaw.sop.validate import Checker
from coilclaw.tools.filewrite import FileWrite
from coilclaw.workspace.cancel import Cancellation, linked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from coilclaw.app.agentwiring import Runtime
    from coilclaw.config.values import Config
    from coilclaw.domain.messages import Json, ToolCall
    from coilclaw.domain.redacting import Redacting
    from coilclaw.domain.toolcalls import ApprovalRequest, Approve, ToolResult
    from coilclaw.runtime.approvals import Approval, Question
    from coilclaw.runtime.handle import TurnOutcome
    from coilclaw.sop.document import Sop
    from coilclaw.sop.inputs import InputSpec
    from coilclaw.sop.interruption import Resolution
    from coilclaw.sop.runfile import Run, RunFile
    from coilclaw.tools.contract import ToolContext


Around: TypeAlias = "Callable[[str, Cancellation], AbstractContextManager[None]]"


@dataclass(frozen=True, slots=True)
class Attended:
    """The person at the terminal, if a run may ask one."""

    approve: Approve
    confirm: Callable[[Question], bool | None]


@dataclass(frozen=True, slots=True)
class Examined:
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

    def __call__(self, request: ApprovalRequest) -> Answer:
        return self._own.get(request.conversation_id, self._usual)(request)

    @contextmanager
    def asking(self, conversation_id: str, approve: Approve) -> Iterator[None]:
        self._own[conversation_id] = approve
        try:
            yield
        finally:
            del self._own[conversation_id]


class _OneByOne:
    """Lets one question at a time reach the person at the terminal."""

    def __init__(self, attended: Attended) -> None:
        self._attended = attended
        self._mutex = threading.RLock()

    def approve(self, request: ApprovalRequest) -> Answer:
        with self._mutex:
            return self._attended.approve(request)

    def confirm(self, question: Question) -> bool | None:
        with self._mutex:
            return self._attended.confirm(question)


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
        self._attended = None if attended is None else _OneByOne(attended)
        self._cancel = Cancellation() if cancel is None else cancel
        self._around = around
        self._workspace = runtime.config.workspace_dir
        self._receipts = runtime.config.receipts.path
        guard = runtime.guard
        self._checker = Checker(guard.tools, guard.allowed, guard.validators, lines_of)
        self._runs = Runs(runtime.home, now)

    def examine(self, name: str | None = None) -> tuple[Examined, ...]:
        """Check one SOP, or all of them."""
        home = self._runtime.home
        if name is not None:
            return (self._examined(folders.find(name, home, self._workspace)),)
        return tuple(map(self._examined, folders.everything(home, self._workspace)))

    def run(
        self,
        name: str,
        begun: Callable[[str], None] = lambda _: None,
        *,
        inputs: Mapping[str, Json] | Sequence[str] = (),
    ) -> Run:
        """Begin a run and go as far as it goes; ``begun`` is told its id before anything runs.

        Inputs are values by name, or texts of the form ``NAME=VALUE``.
        """
        found = folders.find(name, self._runtime.home, self._workspace)
        sop = self._checked(found, found.read())
        if isinstance(inputs, Mapping):
            given = check_inputs(sop.inputs, inputs)
        else:
            given = parse_inputs(sop.inputs, [valid(text) for text in inputs])
        file = self._runs.begin(
            sop, str(self._workspace), str(self._receipts), given, asker=self._asker
        )
        try:
            begun(file.id)
            return self._engine(sop, file).go()
        finally:
            file.close()

    def resume(
        self,
        text: str,
        resolution: Resolution | None = None,
        begun: Callable[[str], None] = lambda _: None,
    ) -> Run:
        """Resume a run that waits or was interrupted; ``resolution`` says what of it counts."""
        file = self._runs.open(text)
        try:
            engine = self._engine(self._unchanged(file.run), file)
            engine.settle(resolution)
            begun(file.id)
            return engine.go()
        finally:
            file.close()

    def _unchanged(self, run: Run) -> Sop:
        """The SOP of a run, if everything is as it was when the run began."""
        if run.ending is not None:
            raise UsageError(f"the run {run.id} has ended: {run.ending}", rule="sop.ended")
        if run.workspace != valid(str(self._workspace)):
            raise DeniedError(
                f"the run {run.id} began in the workspace {run.workspace}",
                rule="sop.workspace",
                hint="set workspace_dir back, or begin a new run",
            )
        if run.receipts != valid(str(self._receipts)):
            raise DeniedError(
                f"the receipts of the run {run.id} are in {run.receipts}",
                rule="sop.receipts",
                hint="set receipts.path back, or begin a new run",
            )
        try:
            found = folders.find(run.sop, self._runtime.home, self._workspace)
            data = found.read()
        except UsageError as problem:
            raise DeniedError(
                f"the SOP {run.sop} of the run {run.id} is not what it was: {problem.message}",
                rule="sop.changed",
                hint="begin a new run",
            ) from problem
        if digest(data) != run.sop_hash:
            raise DeniedError(
                f"{found.path} has changed since the run {run.id} began",
                rule="sop.changed",
                hint="put it back as it was, or begin a new run",
            )
        return self._checked(found, data)

    def _checked(self, found: folders.Found, data: bytes) -> Sop:
        sop, problems = self._checker.check(data, found.name)
        if sop is None:
            raise invalid(found.name, folders.FILE_NAME, problems)
        return sop

    def _examined(self, found: folders.Found) -> Examined:
        try:
            sop, problems = self._checker.check(found.read(), found.name)
        except UsageError as problem:
            sop, problems = None, (Problem("", None, problem.message),)
        description = "" if sop is None else sop.description
        stages = () if sop is None else tuple((one.id, one.kind) for one in sop.stages)
        inputs = () if sop is None else tuple(sop.inputs.values())
        return Examined(found.name, found.path, description, stages, problems, inputs)

    def _engine(self, sop: Sop, file: RunFile) -> Engine:
        runtime = self._runtime
        attended = self._attended
        # What all calls share is made here, once, before any thread.
        _ = runtime.tree, runtime.policy_source.places, runtime.policy_source.hash
        if any(stage.kind == "agent" for stage in sop.stages):
            _ = runtime.loop
        means = Means(
            tools=runtime.guard.tools,
            call=self._call,
            turn=self._turn,
            said=runtime.memory.conversation,
            in_place=self._is_in_place,
            book=runtime.guard.book,
            estop=runtime.guard.estop,
            desk=open_desk(runtime.home, file.run.asker or self._asker),
            approve=None if attended is None else attended.approve,
            confirm=None if attended is None else attended.confirm,
            halt=self._cancel.cancel,
            stopped=lambda: self._cancel.reason,
        )
        return Engine(sop, file, means)

    def _call(self, call: ToolCall, conversation_id: str, approve: Approve) -> ToolResult:
        made = guarded(self._runtime)
        with self._switch.asking(conversation_id, approve), linked(self._cancel) as cancel:
            return made(call, conversation_id, cancel)

    def _turn(self, message: str, conversation_id: str) -> TurnOutcome:
        runtime = self._runtime
        with ExitStack() as stack:

            def context(name: str, turn: str) -> ToolContext:
                cancel = stack.enter_context(linked(self._cancel))
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
    redactor: Redacting | None = None,
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


def list_sops(runtime: Runtime) -> tuple[Examined, ...]:
    """Check every SOP against the tools of a runtime that is open."""
    return Sops(runtime, _Switch(lambda _: Answer(Reply.NO, "nobody")), None).examine()


def open_runs(home: Path) -> Runs:
    """The runs by themselves, for the commands that only look at them."""
    return Runs(home, now)


def open_desk(home: Path, asker: str = "") -> Desk:
    """The desk where approvals wait; ``asker`` is for whom one asks there."""
    return Desk(home, now, asker=asker)


def rejected(home: Path, approval: Approval) -> bool:
    """End the run that waits for an approval that was rejected; say whether it ended."""
    if approval.question.kind != "sop" or approval.question.tool:
        return False  # a call that was denied is a failed stage, which need not end the run
    try:
        file = open_runs(home).open(approval.question.origin)
    except (UsageError, LockTimeout):
        return False  # it is gone, or somebody works on it and will see the answer
    try:
        run = file.run
        stage = next((name for name, one in run.waits.items() if one == approval.id), "")
        if run.ending is not None or stage not in run.attempts:
            return False
        error = f"{approval.answered_by} said no"
        file.finished(
            Outcome(
                stage,
                "rejected",
                run.attempts[stage].number,
                error=error,
                rule="approval.rejected",
                approval=approval.id,
            )
        )
        file.end("rejected", f"{stage}: {error}")
        return True
    finally:
        file.close()


def now() -> datetime:
    return datetime.now().astimezone()
