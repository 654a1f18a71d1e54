"""Run handlers of an environment for one submission: alone, or cases side by side."""

from __future__ import annotations

import inspect
import json
import queue
import threading
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias
from weakref import WeakSet

from coilclaw.kernel import CoilClawError, Json
from coilclaw.traces.environments.checks import CaseFailed, CaseSkipped
from coilclaw.traces.environments.declarations import Documents, bind
from coilclaw.traces.environments.programs import ProgramScope, ScopeOver, enter_scope
from coilclaw.traces.environments.results import Case, Status
from coilclaw.traces.environments.sandbox_boxes import Slot
from coilclaw.workspace import SandboxSupport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from coilclaw.traces.environments.containment import Tools
    from coilclaw.traces.environments.environment import EnvironmentHook, PlannedCase

Task: TypeAlias = Literal["schema", "select", "test"]

MAX_MESSAGE_BYTES: Final = 16 * 2**20
MAX_REQUEST_BYTES: Final = 2**20
GRACE_S: Final = 3.0
"""How long a handler whose time is up may take to notice it: its programs are killed meanwhile."""
_OWN_FRAMES: Final = "coilclaw/traces/environments/"


@dataclass(frozen=True, slots=True)
class Request:
    """The task of a worker process, sent as one JSON object on its input."""

    task: Task
    file: Path
    session: Path
    scratch: Path
    path: str
    params: Mapping[str, Json]
    jobs: int
    built: bool
    """Whether the session holds what a setup made of this very tree."""
    support: SandboxSupport
    hidden: tuple[Path, ...] = ()

    def encode(self) -> bytes:
        return json.dumps(asdict(self), default=str).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> Self:
        value = json.loads(data)
        paths = {name: Path(value[name]) for name in ("file", "session", "scratch")}
        support = {**value["support"], "notes": tuple(value["support"]["notes"])}
        hidden = tuple(map(Path, value["hidden"]))
        return cls(**{**value, **paths, "support": SandboxSupport(**support), "hidden": hidden})


@dataclass(frozen=True, slots=True)
class Handling:
    """Calls handlers, sync or async, for one submission."""

    request: Request
    documents: Documents
    tools: Tools
    stop: threading.Event = field(default_factory=threading.Event)
    """Once it is set, no further case is run."""
    scopes: WeakSet[ProgramScope] = field(default_factory=WeakSet)
    slots: list[Slot] = field(default_factory=list)

    def check(self, cases: Iterable[PlannedCase]) -> None:
        """Refuse parameters that do not fit, before anything is built."""
        for case in cases:
            self._bind(case)

    def slot(self) -> Slot:
        """Make a place for cases to run in, one after the other."""
        scratch, number = self.request.scratch, len(self.slots)
        slot = Slot(scratch / f"slot-{number}", scratch / f"apart-{number}")
        self.slots.append(slot)
        return slot

    def scope(self, timeout_s: float, slot: Slot | None = None) -> ProgramScope:
        """Return the scope of a case in its slot, or of a setup or teardown in the submission."""
        session = self.request.session
        scope = ProgramScope(
            session=session,
            directory=session if slot is None else slot.case,
            temporary=self.request.scratch / "setup.tmp" if slot is None else slot.temporary,
            support=self.request.support,
            timeout_s=timeout_s,
            tools=self.tools,
            hidden=self.request.hidden,
            slot=slot,
        )
        self.scopes.add(scope)
        return scope

    def end(self) -> None:
        """End everything that runs, because the caller is gone."""
        for scope in list(self.scopes):
            scope.end()
        for slot in self.slots:
            slot.close()

    def hook(self, hook: EnvironmentHook, what: str) -> str | None:
        """Call the setup or the teardown; return why it failed, or ``None``."""
        given = bind(hook.parameters, {}, self.request.params, self.documents, f"the {what}")
        scope = self.scope(hook.timeout_s)
        try:
            with enter_scope(scope):
                _call(hook, given)
        except CaseSkipped as problem:
            return f"it was skipped: {problem}"
        except CaseFailed as problem:
            return _add_log(f"{problem.message}\n{problem.difference or ''}".strip(), scope)
        except (ScopeOver, TimeoutError):
            return _add_log(f"it took more than {hook.timeout_s:g} seconds", scope)
        except AssertionError as problem:
            return _add_log(str(problem) or "an assertion failed", scope)
        except Exception as problem:  # noqa: BLE001 - the author's code may raise anything
            return _add_log(_describe(problem), scope)
        return None

    def case(self, planned: PlannedCase, scope: ProgramScope) -> Case:
        """Run one case to its end; an exception in it is a failed case."""
        if self.stop.is_set():
            return Case(id=planned.id, status="error", duration_ms=0, failure_kind="stopped")
        began = time.monotonic()
        try:
            arguments = self._bind(planned)
            with enter_scope(scope):
                _call(planned, arguments)
        except BaseException as problem:  # noqa: BLE001 - the author's code may raise anything
            return _make_failed(planned, scope, problem, _measure_ms(began))
        finally:
            if scope.slot is not None:
                scope.slot.tidy()
        log = scope.log() or None
        return Case(id=planned.id, status="passed", duration_ms=_measure_ms(began), log=log)

    def _bind(self, case: PlannedCase) -> dict[str, object]:
        return bind(case.parameters, case.fixed, self.request.params, self.documents, case.id)


@dataclass(frozen=True, slots=True)
class _Underway:
    planned: PlannedCase
    scope: ProgramScope
    slot: Slot

    @property
    def deadline(self) -> float:
        return self.scope.began + self.planned.timeout_s


def run_cases(
    cases: Sequence[PlannedCase], handling: Handling, jobs: int, report: Callable[[Case], None]
) -> None:
    """Run all of the cases, up to ``jobs`` at once, and report each when it is over.

    A handler that does not end, though its time is up, is left behind: its outcome is known, and
    the process ends without it.
    """
    waiting = list(enumerate(cases))[::-1]
    free: list[Slot] = []
    made: list[Slot] = []
    underway: dict[int, _Underway] = {}
    over: queue.SimpleQueue[tuple[int, Case]] = queue.SimpleQueue()

    def perform(index: int, one: _Underway) -> None:
        over.put((index, handling.case(one.planned, one.scope)))

    while waiting or underway:
        while waiting and len(underway) < max(jobs, 1):
            index, planned = waiting.pop()
            if not free:
                made.append(handling.slot())
                free.append(made[-1])
            slot = free.pop()
            one = _Underway(planned, handling.scope(planned.timeout_s, slot), slot)
            underway[index] = one
            threading.Thread(target=perform, args=(index, one), daemon=True).start()
        first = min(one.deadline for one in underway.values())
        try:
            index, case = over.get(timeout=max(first - time.monotonic(), 0.0) + GRACE_S)
        except queue.Empty:
            now = time.monotonic()
            for index, one in list(underway.items()):
                if now >= one.deadline + GRACE_S:
                    # Its handler may still be at work in the slot: no other case gets that.
                    one.scope.end()
                    # Cancelled it may end after all, and then what it says comes too late.
                    report(_make_overdue(one.planned, one.scope))
                    del underway[index]
            continue
        if index in underway:
            free.append(underway.pop(index).slot)
            report(case)
    for slot in made:
        slot.close()


def _make_overdue(planned: PlannedCase, scope: ProgramScope) -> Case:
    """Return the outcome of a case whose time is up, whatever its handler is doing."""
    return Case(
        id=planned.id,
        status="timeout",
        duration_ms=_measure_ms(scope.began),
        failure_kind="timeout",
        log=_add_log(f"the case took more than {planned.timeout_s:g} seconds", scope),
    )


def _call(declared: PlannedCase | EnvironmentHook, arguments: dict[str, object]) -> None:
    made = declared.handler(**arguments)
    if inspect.iscoroutine(made):
        import asyncio

        asyncio.run(made)


def _make_failed(
    planned: PlannedCase, scope: ProgramScope, problem: BaseException, duration_ms: int
) -> Case:
    if isinstance(problem, ScopeOver):
        return _make_overdue(planned, scope)
    if isinstance(problem, CaseFailed):
        return Case(
            id=planned.id,
            status="timeout" if problem.kind == "timeout" else "failed",
            duration_ms=duration_ms,
            failure_kind=problem.kind,
            expected=problem.expected,
            actual=problem.actual,
            difference=problem.difference,
            log=f"{scope.log()}{problem.message}",
        )
    status: Status = "error"
    kind: str | None = "exception"
    said = _describe(problem)
    if isinstance(problem, CaseSkipped):
        status, kind, said = "skipped", None, str(problem)
    elif isinstance(problem, AssertionError):
        status, kind = "failed", "assertion"
    return Case(
        id=planned.id,
        status=status,
        duration_ms=duration_ms,
        failure_kind=kind,
        log=f"{scope.log()}{said}",
    )


def _describe(problem: BaseException) -> str:
    """Return the error with the lines of the author's code that led to it."""
    if isinstance(problem, CoilClawError):
        return f"{type(problem).__name__}: {problem.message} [{problem.rule}]"
    frames = [
        frame
        for frame in traceback.extract_tb(problem.__traceback__)
        if _OWN_FRAMES not in frame.filename or "/shipped/" in frame.filename
    ]
    lines = [f"{frame.filename}:{frame.lineno}: {frame.line}" for frame in frames[-5:]]
    return "\n".join([f"{type(problem).__name__}: {problem}", *lines])


def _add_log(message: str, scope: ProgramScope) -> str:
    return f"{message}\n{scope.log().strip()}".rstrip("\n")


def _measure_ms(began: float) -> int:
    return int((time.monotonic() - began) * 1000)
