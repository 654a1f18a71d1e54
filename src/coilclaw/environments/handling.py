"""``Handling``: one call of one handler, sync or async, and what became of it."""

from __future__ import annotations

import asyncio
import inspect
import time
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from coilclaw.environments import scope as scopes
from coilclaw.environments.checks import CaseFailed, CaseSkipped
from coilclaw.environments.difference import first_difference
from coilclaw.environments.parameters import bind
from coilclaw.environments.results import Case
from coilclaw.environments.scope import Scope, ScopeOver
from coilclaw.environments.slots import Slot
from coilclaw.errors import CoilClawError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coilclaw.environments.environment import Planned
    from coilclaw.environments.parameters import Documents
    from coilclaw.environments.registry import Handler, Hook
    from coilclaw.environments.wire import Request

_OWN_FRAMES: Final = "coilclaw/environments/"


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a setup or a teardown failed."""

    message: str


@dataclass(frozen=True, slots=True)
class Handling:
    """Calls handlers for one submission."""

    request: Request
    documents: Documents
    scopes: WeakSet[Scope] = field(default_factory=WeakSet)
    slots: list[Slot] = field(default_factory=list)

    def check(self, cases: Iterable[Planned]) -> None:
        """Refuse parameters that do not fit, before anything is built."""
        for case in cases:
            bind(case.parameters, case.fixed, self.request.params, self.documents, case.id)

    def slot(self) -> Slot:
        """Make a place for cases to run in, one after the other."""
        scratch, number = self.request.scratch, len(self.slots)
        slot = Slot(scratch / f"slot-{number}", scratch / f"apart-{number}")
        self.slots.append(slot)
        return slot

    def scope(self, timeout_s: float, slot: Slot | None = None) -> Scope:
        """The scope of a case in its slot, or of a setup or teardown in the submission."""
        session = self.request.session
        scope = Scope(
            session=session,
            directory=session if slot is None else slot.case,
            temporary=self.request.scratch / "setup.tmp" if slot is None else slot.temporary,
            support=self.request.support,
            timeout_s=timeout_s,
            hidden=self.request.hidden,
            slot=slot,
        )
        self.scopes.add(scope)
        return scope

    def end(self) -> None:
        """End everything that runs, because nobody is left to hear of it."""
        for scope in list(self.scopes):
            scope.end()
        for slot in self.slots:
            slot.close()

    def hook(self, hook: Hook, what: str) -> Trouble | None:
        """Call the setup or the teardown; ``None`` if it went well."""
        given = bind(hook.parameters, {}, self.request.params, self.documents, f"the {what}")
        scope = self.scope(hook.timeout_s)
        try:
            with scopes.entered(scope):
                _call(hook.handler, given)
        except CaseSkipped as problem:
            return Trouble(f"it was skipped: {problem}")
        except CaseFailed as problem:
            return Trouble(_with_log(_whole(problem), scope))
        except (ScopeOver, TimeoutError):
            message = f"it took more than {hook.timeout_s:g} seconds"
            return Trouble(_with_log(message, scope))
        except AssertionError as problem:
            return Trouble(_with_log(str(problem) or "an assertion failed", scope))
        except Exception as problem:  # noqa: BLE001 - the author's code may raise anything
            return Trouble(_with_log(_told(problem), scope))
        return None

    def case(self, planned: Planned, scope: Scope) -> Case:
        """Run one case to its end; an exception in it is a failed case."""
        began = time.monotonic()
        try:
            arguments = bind(
                planned.parameters,
                planned.fixed,
                self.request.params,
                self.documents,
                planned.id,
            )
            with scopes.entered(scope):
                _call(planned.handler, arguments)
        except BaseException as problem:  # noqa: BLE001 - the author's code may raise anything
            return _failed(planned, scope, problem, _since(began))
        finally:
            if scope.slot is not None:
                scope.slot.tidy()
        return Case(
            id=planned.id, status="passed", duration_ms=_since(began), log=scope.log() or None
        )


def overdue(planned: Planned, scope: Scope) -> Case:
    """The outcome of a case whose time is up, whatever its handler is doing."""
    return Case(
        id=planned.id,
        status="timeout",
        duration_ms=_since(scope.began),
        failure_kind="timeout",
        log=_with_log(f"the case took more than {planned.timeout_s:g} seconds", scope),
    )


def _call(handler: Handler, arguments: dict[str, object]) -> None:
    made = handler(**arguments)
    if inspect.iscoroutine(made):
        asyncio.run(made)


def _failed(planned: Planned, scope: Scope, problem: BaseException, duration_ms: int) -> Case:
    log = scope.log()
    match problem:
        case CaseSkipped():
            return Case(
                id=planned.id, status="skipped", duration_ms=duration_ms, log=f"{log}{problem}"
            )
        case CaseFailed():
            difference = None
            if problem.expected is not None and problem.actual is not None:
                difference = first_difference(problem.expected, problem.actual)
            return Case(
                id=planned.id,
                status="timeout" if problem.kind == "timeout" else "failed",
                duration_ms=duration_ms,
                failure_kind=problem.kind,
                expected=problem.expected,
                actual=problem.actual,
                difference=difference,
                log=f"{log}{problem.message}",
            )
        case ScopeOver():
            return overdue(planned, scope)
        case AssertionError():
            return Case(
                id=planned.id,
                status="failed",
                duration_ms=duration_ms,
                failure_kind="assertion",
                log=log + _told(problem),
            )
        case _:
            return Case(
                id=planned.id,
                status="error",
                duration_ms=duration_ms,
                failure_kind="exception",
                log=log + _told(problem),
            )


def _told(problem: BaseException) -> str:
    """The error with the lines of the author's code that led to it."""
    if isinstance(problem, CoilClawError):
        return f"{type(problem).__name__}: {problem.message} [{problem.rule}]"
    frames = [
        frame
        for frame in traceback.extract_tb(problem.__traceback__)
        if _OWN_FRAMES not in frame.filename or "/shipped/" in frame.filename
    ]
    lines = [f"{frame.filename}:{frame.lineno}: {frame.line}" for frame in frames[-5:]]
    return "\n".join([f"{type(problem).__name__}: {problem}", *lines])


def _whole(problem: CaseFailed) -> str:
    difference = ""
    if problem.expected is not None and problem.actual is not None:
        difference = first_difference(problem.expected, problem.actual) or ""
    return f"{problem.message}\n{difference}".strip()


def _with_log(message: str, scope: Scope) -> str:
    log = scope.log().strip()
    return f"{message}\n{log}" if log else message


def _since(began: float) -> int:
    return int((time.monotonic() - began) * 1000)
