"""What an environment file imports: declaring tests, running what was submitted, checking it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar, cast, overload

from coilclaw.traces.environments import containment, programs
from coilclaw.traces.environments.checks import (
    CaseFailed,
    CaseSkipped,
    check,
    expect,
    expect_output,
    expect_success,
    fail,
    plain_file,
    skip,
)
from coilclaw.traces.environments.containment import Limits
from coilclaw.traces.environments.declarations import Documents, Name, Value, name_of
from coilclaw.traces.environments.environment import (
    DEFAULT_CASE_TIMEOUT_S,
    DEFAULT_SETUP_TIMEOUT_S,
    CaseSpec,
    Handler,
    current_registry,
)
from coilclaw.traces.environments.programs import Program, RunResult, run, start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path


__all__ = [
    "CaseFailed",
    "CaseSkipped",
    "CaseSpec",
    "Documents",
    "Limits",
    "Program",
    "RunResult",
    "Suite",
    "anew",
    "case",
    "case_path",
    "cases",
    "check",
    "covers",
    "expect",
    "expect_output",
    "expect_success",
    "fail",
    "hide",
    "plain_file",
    "run",
    "session_path",
    "setup",
    "skip",
    "skipped_case",
    "start",
    "suite",
    "teardown",
    "test",
]

F = TypeVar("F", bound=Handler)


class _Decorator(Protocol):
    """A decorator that is used with or without a time limit."""

    @overload
    def __call__(self, handler: F, /) -> F: ...
    @overload
    def __call__(self, /, *, timeout_s: float = ...) -> Callable[[F], F]: ...


def _make_decorator(default_s: float, declare: Callable[[Handler, float], None]) -> _Decorator:
    def decorate(handler: F | None = None, /, *, timeout_s: float = default_s) -> object:
        def keep(made: F) -> F:
            declare(made, timeout_s)
            return made

        return keep if handler is None else keep(handler)

    return cast("_Decorator", decorate)


class Suite:
    """A named group of tests; suites may stand in suites."""

    __slots__ = ("_names",)

    def __init__(self, names: tuple[Name, ...] = ()) -> None:
        self._names = names

    @property
    def path(self) -> str:
        return "/".join(name.text for name in self._names)

    def suite(self, name: str, **values: Iterable[Value]) -> Suite:
        """Return a suite in this one; ``values`` are those of the fields of a template."""
        return Suite((*self._names, name_of(name, values)))

    @overload
    def test(self, name: F, /) -> F: ...

    @overload
    def test(
        self,
        name: str | None = None,
        /,
        *,
        timeout_s: float = DEFAULT_CASE_TIMEOUT_S,
        **values: Iterable[Value],
    ) -> Callable[[F], F]: ...

    def test(
        self,
        name: str | F | None = None,
        /,
        *,
        timeout_s: float = DEFAULT_CASE_TIMEOUT_S,
        **values: Iterable[Value],
    ) -> F | Callable[[F], F]:
        """Declare a test: ``@test``, ``@test()``, ``@test("name")`` or ``@test("x_{n}", n=…)``."""

        def declare(handler: F) -> F:
            called = getattr(handler, "__name__", "") if name is None or callable(name) else name
            names = (*self._names, name_of(called, values))
            current_registry().add(names, handler, timeout_s)
            return handler

        return declare(name) if callable(name) else declare

    @property
    def cases(self) -> _Decorator:
        """Declare a function that yields ``case(…)``, such as one for each file of a directory.

        It runs before anything is submitted: which cases there are depends on nothing else than
        the fields of its path and parameters that have a default.
        """
        return _make_decorator(
            DEFAULT_CASE_TIMEOUT_S,
            lambda made, seconds: current_registry().add(self._names, made, seconds, many=True),
        )


def suite(name: str, **values: Iterable[Value]) -> Suite:
    """Return a suite at the top."""
    return Suite().suite(name, **values)


test = Suite().test
cases = Suite().cases


def case(
    name: str, handler: Handler, *, timeout_s: float | None = None, **arguments: object
) -> CaseSpec:
    """Name one case of a function of cases: what to call, and with what."""
    return CaseSpec(name, handler, arguments, timeout_s)


def skipped_case(name: str, reason: str) -> CaseSpec:
    """Name a case that cannot be judged here: it is skipped, also where the build fails."""
    return CaseSpec(name, lambda: skip(reason), skipped=reason)


def _make_hook(kind: str) -> _Decorator:
    return _make_decorator(
        DEFAULT_SETUP_TIMEOUT_S,
        lambda made, seconds: current_registry().hook(kind, made, seconds),
    )


setup = _make_hook("setup")
"""Declare what builds a submission, in its own directory, before its tests."""
teardown = _make_hook("teardown")
"""Declare what undoes the setup; with it, every call builds again."""


def session_path() -> Path:
    """Return the directory of the built submission; only a setup writes to it."""
    return programs.current().session


def case_path() -> Path:
    """Return the private directory of the running case; it is removed with the case."""
    return programs.current().directory


def anew() -> None:
    """Take away what the case's programs left: the next one finds as much as the first did."""
    slot = programs.current().slot
    if slot is not None:
        slot.reset()


def hide(path: Path) -> None:
    """Keep a file or directory from the programs that this handler runs from now on."""
    programs.current().hide(path)


def covers() -> bool:
    """Return whether ``run(without=…)`` can report what was used on this machine."""
    return containment.can_cover(programs.current().support)
