"""SOPs, wired: found, checked against the tools there are, run through the guard, resumed."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from coilclaw.app.agentwiring import People, open_runtime
from coilclaw.config.locate import lines_of
from coilclaw.domain.canonical import digest
from coilclaw.errors import DeniedError, LockTimeout, UsageError
from coilclaw.runtime.approvals import Desk
from coilclaw.sop import folders
from coilclaw.sop.engine import Engine
from coilclaw.sop.means import Means
from coilclaw.sop.outcome import Outcome
from coilclaw.sop.problem import Problem, invalid
from coilclaw.sop.runfile import Runs, valid
from coilclaw.sop.validate import Checker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from coilclaw.app.agentwiring import Runtime
    from coilclaw.config.values import Config
    from coilclaw.domain.messages import ToolCall
    from coilclaw.domain.toolcalls import Answer, ApprovalRequest, Approve, ToolResult
    from coilclaw.runtime.approvals import Approval, Question
    from coilclaw.sop.document import Sop
    from coilclaw.sop.runfile import Run, RunFile


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


class _Switch:
    """Whom the guard asks at the moment: a tool stage has an approver of its own."""

    def __init__(self, usual: Approve) -> None:
        self._now = usual

    def __call__(self, request: ApprovalRequest) -> Answer:
        return self._now(request)

    @contextmanager
    def asking(self, approve: Approve) -> Iterator[None]:
        usual, self._now = self._now, approve
        try:
            yield
        finally:
            self._now = usual


class Sops:
    """The SOPs of one home and one workspace."""

    def __init__(self, runtime: Runtime, switch: _Switch, attended: Attended | None) -> None:
        self._runtime = runtime
        self._switch = switch
        self._attended = attended
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

    def run(self, name: str, begun: Callable[[str], None] = lambda _: None) -> Run:
        """Begin a run and go as far as it goes; ``begun`` is told its id before anything runs."""
        found = folders.find(name, self._runtime.home, self._workspace)
        sop = self._checked(found, found.read())
        file = self._runs.begin(sop, str(self._workspace), str(self._receipts))
        try:
            begun(file.id)
            return self._engine(sop, file).go()
        finally:
            file.close()

    def resume(self, text: str) -> Run:
        """Go on with a run that waits or was interrupted."""
        file = self._runs.open(text)
        try:
            return self._engine(self._unchanged(file.run), file).go()
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
        return Examined(found.name, found.path, description, stages, problems)

    def _engine(self, sop: Sop, file: RunFile) -> Engine:
        runtime = self._runtime
        attended = self._attended
        means = Means(
            tools=runtime.guard.tools,
            call=self._call,
            turn=lambda message, name: runtime.turn(message, conversation_id=name),
            said=runtime.memory.conversation,
            book=runtime.guard.book,
            estop=runtime.guard.estop,
            desk=Desk(runtime.home, now),
            approve=None if attended is None else attended.approve,
            confirm=None if attended is None else attended.confirm,
        )
        return Engine(sop, file, means)

    def _call(self, call: ToolCall, conversation_id: str, approve: Approve) -> ToolResult:
        with self._switch.asking(approve):
            return self._runtime.call(call, conversation_id=conversation_id)


@contextmanager
def open_sops(
    home: Path,
    environ: Mapping[str, str],
    people: People,
    *,
    config: Config | None = None,
    attended: Attended | None = None,
) -> Iterator[Sops]:
    """Open the runtime for SOPs; without ``attended`` approvals wait on the desk."""
    switch = _Switch(people.approve)
    with open_runtime(home, environ, People(switch, people.ask), config=config) as runtime:
        yield Sops(runtime, switch, attended)


def open_runs(home: Path) -> Runs:
    """The runs by themselves, for the commands that only look at them."""
    return Runs(home, now)


def open_desk(home: Path) -> Desk:
    """The desk where approvals wait."""
    return Desk(home, now)


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
        if run.ending is not None or run.approval != approval.id or run.attempt is None:
            return False
        error = f"{approval.answered_by} said no"
        file.finished(
            Outcome(
                run.attempt.stage,
                "rejected",
                run.attempt.number,
                error=error,
                rule="approval.rejected",
                approval=approval.id,
            )
        )
        file.end("rejected", f"{run.attempt.stage}: {error}")
        return True
    finally:
        file.close()


def now() -> datetime:
    return datetime.now().astimezone()
