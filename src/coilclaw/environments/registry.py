"""``Registry``: what an environment file declares while it is being loaded."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.environments.naming import MAX_PATH, Name
from coilclaw.environments.parameters import Parameter, parameters_of, value_of
from coilclaw.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

Handler: TypeAlias = Callable[..., object]
"""A function, or a coroutine function, of the environment's author."""

DEFAULT_CASE_TIMEOUT_S: Final = 60.0
DEFAULT_SETUP_TIMEOUT_S: Final = 300.0
MAX_TIMEOUT_S: Final = 24 * 3600.0
MAX_ENTRIES: Final = 10_000

_current: ContextVar[Registry] = ContextVar("registry")


@dataclass(frozen=True, slots=True)
class CaseSpec:
    """One case that a function of cases names."""

    name: str
    handler: Handler
    arguments: Mapping[str, object] = field(default_factory=dict)
    timeout_s: float | None = None
    skipped: str | None = None
    """Why it cannot be judged at all, whatever becomes of the build."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One declared handler; ``names`` lead to it, and with ``many`` to the suite of its cases."""

    names: tuple[Name, ...]
    handler: Handler
    parameters: tuple[Parameter, ...]
    timeout_s: float
    many: bool = False

    @property
    def path(self) -> str:
        """Its path as declared, templates and all."""
        return "/".join(name.text for name in self.names)

    @property
    def fields(self) -> frozenset[str]:
        return frozenset(one for name in self.names for one in name.fields)

    @property
    def description(self) -> str:
        return described(self.handler)


@dataclass(frozen=True, slots=True)
class Hook:
    """A setup or a teardown."""

    handler: Handler
    parameters: tuple[Parameter, ...]
    timeout_s: float


class Registry:
    """Collects the declarations of one file."""

    __slots__ = ("entries", "setup", "teardown")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.setup: Hook | None = None
        self.teardown: Hook | None = None

    def add(
        self, names: tuple[Name, ...], handler: Handler, timeout_s: float, *, many: bool = False
    ) -> None:
        """Declare a test, or a function of cases, below these names."""
        path = "/".join(name.text for name in names)
        what = f"the test {path}" if not many else f"the cases of {path or 'the environment'}"
        _refuse_uncallable(handler, what)
        if len(path) > MAX_PATH or len(self.entries) >= MAX_ENTRIES:
            raise UsageError(f"{what} is one too many, or too deep", rule="environment.bounds")
        entry = Entry(names, handler, parameters_of(handler, what), _seconds(timeout_s, what), many)
        _hold_to_annotations(entry, what)
        self.entries.append(entry)

    def hook(self, kind: str, handler: Handler, timeout_s: float) -> None:
        """Declare the setup or the teardown; there is at most one of each."""
        if getattr(self, kind) is not None:
            raise UsageError(f"there is a second {kind}", rule="environment.twice")
        _refuse_uncallable(handler, f"the {kind}")
        made = Hook(
            handler, parameters_of(handler, f"the {kind}"), _seconds(timeout_s, f"the {kind}")
        )
        setattr(self, kind, made)


def current() -> Registry:
    """The registry of the file that is being loaded."""
    try:
        return _current.get()
    except LookupError:
        raise UsageError(
            "an environment file declares its tests only while it is being loaded",
            rule="environment.not_loading",
            hint="use coilclaw env test FILE",
        ) from None


@contextmanager
def recording() -> Iterator[Registry]:
    """Be current for as long as a file is loaded."""
    registry = Registry()
    token = _current.set(registry)
    try:
        yield registry
    finally:
        _current.reset(token)


def described(handler: Handler) -> str:
    """The first line of a handler's docstring."""
    text = (getattr(handler, "__doc__", None) or "").strip()
    return re.split(r"\n", text, maxsplit=1)[0][:200]


def _refuse_uncallable(handler: object, what: str) -> None:
    if not callable(handler) or isinstance(handler, type):
        raise UsageError(f"{what} is no function", rule="environment.handler")


def _seconds(timeout_s: float, what: str) -> float:
    if not 0 < timeout_s <= MAX_TIMEOUT_S:
        raise UsageError(
            f"the time limit of {what} is {timeout_s} seconds", rule="environment.timeout"
        )
    return float(timeout_s)


def _hold_to_annotations(entry: Entry, what: str) -> None:
    known = {one.name: one for one in entry.parameters}
    seen: set[str] = set()
    for name in entry.names:
        for one, values in name.values:
            if one in seen:
                raise UsageError(
                    f"{what} has two fields {one}", rule="environment.template", hint="rename one"
                )
            seen.add(one)
            if one in known:
                for value in values:
                    value_of(known[one].type, value, f"the value of {one} in {what}")
    if entry.many:
        for asked in entry.parameters:
            if asked.name not in seen and (asked.required or asked.is_documents):
                raise UsageError(
                    f"{what} depend on {asked.name}, which no template names",
                    rule="environment.parameter",
                    hint="which cases there are must be known before anything is submitted: "
                    "give it a default",
                )
