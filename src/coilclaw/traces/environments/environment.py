"""``Environment``: everything that a file declared, and the cases at a path of it.

Loading a file runs its author's code: that is done in a worker process only.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import product
from posixpath import commonpath
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.kernel import CoilClawError, Json, UsageError
from coilclaw.traces.environments.catalogue import MAIN
from coilclaw.traces.environments.declarations import (
    MAX_PATH,
    Parameter,
    bind_named,
    check_path,
    name_of,
    parameters_of,
    parameters_schema,
    unknown_path,
    value_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from coilclaw.traces.environments.declarations import Name

Handler: TypeAlias = Callable[..., object]
"""A function, or a coroutine function, of the environment's author."""

SCHEMA_VERSION: Final = 1
MAX_CASES: Final = 100_000
MODULE: Final = "coilclaw_environment"
DEFAULT_CASE_TIMEOUT_S: Final = 60.0
DEFAULT_SETUP_TIMEOUT_S: Final = 300.0
MAX_TIMEOUT_S: Final = 24 * 3600.0
MAX_ENTRIES: Final = 10_000
_TOLD_FRAMES: Final = 3

_registry: ContextVar[Registry] = ContextVar("registry")


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
class EnvironmentHook:
    """A setup or a teardown."""

    handler: Handler
    parameters: tuple[Parameter, ...]
    timeout_s: float


@dataclass(frozen=True, slots=True)
class SuiteEntry(EnvironmentHook):
    """One declared test; ``names`` lead to it, and with ``many`` to the suite of its cases."""

    names: tuple[Name, ...]
    many: bool = False

    @property
    def path(self) -> str:
        """Its path as declared, templates and all."""
        return "/".join(name.text for name in self.names)

    @property
    def fields(self) -> frozenset[str]:
        return frozenset(one for name in self.names for one in name.fields)


@dataclass(frozen=True, slots=True)
class PlannedCase:
    """One case that can be run; ``template`` is its path as declared."""

    id: str
    template: str
    handler: Handler
    parameters: tuple[Parameter, ...]
    fixed: Mapping[str, object]
    timeout_s: float
    skipped: str | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """The cases at a path; ``base`` is the top of the result that they make."""

    base: str
    cases: tuple[PlannedCase, ...]


@dataclass(slots=True)
class Registry:
    """Collects what one file declares while it is being loaded."""

    entries: list[SuiteEntry] = field(default_factory=list)
    setup: EnvironmentHook | None = None
    teardown: EnvironmentHook | None = None

    def add(
        self, names: tuple[Name, ...], handler: Handler, timeout_s: float, *, many: bool = False
    ) -> None:
        """Declare a test, or a function of cases, below these names."""
        path = "/".join(name.text for name in names)
        what = f"the cases of {path or 'the environment'}" if many else f"the test {path}"
        hook = _make_hook(handler, timeout_s, what)
        if len(path) > MAX_PATH or len(self.entries) >= MAX_ENTRIES:
            raise UsageError(
                f"{what} exceeds the number of tests or the length of a path",
                rule="environment.bounds",
            )
        entry = SuiteEntry(handler, hook.parameters, hook.timeout_s, names, many)
        _check_annotations(entry, what)
        self.entries.append(entry)

    def hook(self, kind: str, handler: Handler, timeout_s: float) -> None:
        """Declare the setup or the teardown; there is at most one of each."""
        if getattr(self, kind) is not None:
            raise UsageError(f"the environment declares its {kind} twice", rule="environment.twice")
        setattr(self, kind, _make_hook(handler, timeout_s, f"the {kind}"))


def current_registry() -> Registry:
    """Return the registry of the file that is being loaded."""
    try:
        return _registry.get()
    except LookupError:
        message = "an environment file declares its tests only while it is being loaded"
        hint = "use coilclaw env test FILE"
        raise UsageError(message, rule="environment.not_loading", hint=hint) from None


def load_environment(file: Path) -> Environment:
    """Run an environment file and return what it declares.

    Beside a ``main.py`` its own modules can be imported; any other file stands alone.
    """
    spec = importlib.util.spec_from_file_location(MODULE, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise UsageError(f"{file} is not a Python file", rule="environment.file")
    module = importlib.util.module_from_spec(spec)
    if file.name == MAIN:
        sys.path.insert(0, str(file.parent))
    # Annotations are looked up in the module by its name.
    sys.modules[MODULE] = module
    registry = Registry()
    token = _registry.set(registry)
    try:
        spec.loader.exec_module(module)
    except CoilClawError as problem:
        problem.where = str(file)
        raise
    except (Exception, SystemExit) as problem:
        frames = traceback.extract_tb(problem.__traceback__)[-_TOLD_FRAMES:]
        where = ", ".join(f"{frame.filename}:{frame.lineno}" for frame in reversed(frames))
        told = f"{type(problem).__name__}: {problem} ({where})"
        message = f"the environment {file} cannot be loaded: {told}"
        raise UsageError(message, rule="environment.load") from problem
    finally:
        _registry.reset(token)
    return Environment(file, tuple(registry.entries), registry.setup, registry.teardown)


@dataclass(frozen=True, slots=True)
class Environment:
    """A loaded environment."""

    file: Path
    entries: tuple[SuiteEntry, ...]
    setup: EnvironmentHook | None
    teardown: EnvironmentHook | None

    def select(self, path: str = "", given: Mapping[str, Json] | None = None) -> Selection:
        """Return the cases at a path: of a case, a shard, a suite, or all of them.

        The text of a template stands for all that it stands for. Which cases there are may depend
        on the parameters that are given.
        """
        wanted = check_path(path)
        segments = wanted.split("/") if wanted else []
        found = [
            case
            for case in self._plan(segments, given or {})
            if len(segments) <= case.id.count("/") + 1
            and _agree(segments, case.id.split("/"), case.template.split("/"))
        ]
        if not found and wanted:
            raise unknown_path(wanted, self.paths(given))
        if not found:
            raise UsageError(f"{self.file} declares no tests", rule="environment.empty")
        if all(f"{case.id}/".startswith(f"{wanted}/") for case in found) or not wanted:
            return Selection(wanted, tuple(found))
        # The deepest suite that all of the cases are in.
        suites = [case.id.rpartition("/")[0] for case in found]
        return Selection(commonpath(suites), tuple(found))

    def paths(self, given: Mapping[str, Json] | None = None) -> Iterator[str]:
        """Yield every path that can be asked for: suites, shards and cases."""
        for case in self._plan([], given or {}):
            parts = case.id.split("/")
            for end in range(1, len(parts) + 1):
                yield "/".join(parts[:end])

    def check_given(self, given: Mapping[str, Json], selection: Selection) -> None:
        """Refuse a parameter that no test takes."""
        takers = [(case.parameters, {*case.fixed}) for case in selection.cases]
        takers += [(hook.parameters, set()) for hook in (self.setup, self.teardown) if hook]
        takers += [(entry.parameters, {*entry.fields}) for entry in self.entries if entry.many]
        known = {
            one.name
            for parameters, fixed in takers
            for one in parameters
            if not one.is_documents and one.name not in fixed
        }
        for unknown in sorted(set(given) - known):
            message = f"no test here takes a parameter {unknown!r}"
            hint = f"the parameters are {', '.join(sorted(known)) or '(none)'}"
            raise UsageError(message, rule="environment.parameter.unknown", hint=hint)

    def schema(self) -> dict[str, Json]:
        """Describe what there is to test, for people and programs."""
        return {
            "schema_version": SCHEMA_VERSION,
            "has_setup": self.setup is not None,
            "has_teardown": self.teardown is not None,
            "setup_params_schema": parameters_schema(self.setup.parameters) if self.setup else None,
            "tests": [_entry_schema(entry) for entry in self.entries],
            "cases": [case.id for case in self._plan([], {})],
        }

    def _plan(self, segments: list[str], given: Mapping[str, Json]) -> Iterator[PlannedCase]:
        """Yield the cases in the order of their declaration; most others are not even made."""
        seen: set[str] = set()
        suites: set[str] = set()
        for entry in self.entries:
            for case in _plan_entry(entry, segments, given):
                parts = case.id.split("/")
                above = {"/".join(parts[:end]) for end in range(1, len(parts))}
                if case.id in seen or case.id in suites or above & seen:
                    message = f"{case.id} is declared twice, or as a test and as a suite"
                    raise UsageError(message, rule="environment.twice")
                seen.add(case.id)
                suites |= above
                if len(seen) > MAX_CASES:
                    message = f"there are more than {MAX_CASES} cases"
                    raise UsageError(message, rule="environment.bounds")
                yield case


def _make_hook(handler: object, timeout_s: float, what: str) -> EnvironmentHook:
    if not callable(handler) or isinstance(handler, type):
        raise UsageError(f"{what} is not a function", rule="environment.handler")
    parameters = parameters_of(handler, what)
    if not 0 < timeout_s <= MAX_TIMEOUT_S:
        message = f"the time limit of {what} is {timeout_s} seconds"
        raise UsageError(message, rule="environment.timeout")
    return EnvironmentHook(handler, parameters, float(timeout_s))


def _check_annotations(entry: SuiteEntry, what: str) -> None:
    known = {one.name: one for one in entry.parameters}
    seen: set[str] = set()
    for one, values in (pair for name in entry.names for pair in name.values):
        if one in seen:
            message = f"{what} has two fields {one}"
            raise UsageError(message, rule="environment.template", hint="rename one")
        seen.add(one)
        for value in values if one in known else ():
            value_of(known[one].type, value, f"the value of {one} in {what}")
    for asked in entry.parameters if entry.many else ():
        if asked.name not in seen and (asked.required or asked.is_documents):
            raise UsageError(
                f"{what} depend on {asked.name}, which no template names",
                rule="environment.parameter",
                hint="which cases there are must be known before anything is submitted: "
                "give it a default",
            )


def _entry_schema(entry: SuiteEntry) -> dict[str, Json]:
    own = tuple(one for one in entry.parameters if one.name not in entry.fields)
    description = (getattr(entry.handler, "__doc__", None) or "").strip()
    return {
        "path": entry.path,
        "kind": "cases" if entry.many else "test",
        "values": {one: list(given) for name in entry.names for one, given in name.values},
        "params_schema": parameters_schema(own),
        "description": description.partition("\n")[0][:200],
        "timeout_s": entry.timeout_s,
    }


def _plan_entry(
    entry: SuiteEntry, segments: list[str], given: Mapping[str, Json]
) -> Iterator[PlannedCase]:
    template = [name.text for name in entry.names]
    known = {one.name for one in entry.parameters}
    for chosen in product(*(list(name.expand()) for name in entry.names)):
        parts = [text for text, _ in chosen]
        if not _agree(segments, parts, template):
            continue
        path = "/".join(parts)
        fixed: dict[str, object] = {
            key: one for _, made in chosen for key, one in made.items() if key in known
        }
        if entry.many:
            asked = bind_named(entry.parameters, given, f"the cases of {path or 'the environment'}")
            yield from _generate_cases(entry, path, fixed, asked)
        else:
            yield PlannedCase(
                path, entry.path, entry.handler, entry.parameters, fixed, entry.timeout_s
            )


def _generate_cases(
    entry: SuiteEntry, path: str, fixed: Mapping[str, object], asked: Mapping[str, object]
) -> Iterator[PlannedCase]:
    made = entry.handler(**{**asked, **fixed})
    if not hasattr(made, "__iter__"):
        message = f"the function of the cases of {path or 'the environment'} returned no cases"
        raise UsageError(message, rule="environment.cases")
    for spec in made:
        if not isinstance(spec, CaseSpec):
            message = f"a function of cases gave {type(spec).__name__} instead of case(…)"
            raise UsageError(message, rule="environment.cases")
        name = name_of(spec.name, {}).text
        case_id = f"{path}/{name}" if path else name
        parameters = parameters_of(spec.handler, case_id)
        own = {one.name for one in parameters}
        for stray in sorted(set(spec.arguments) - own):
            message = f"{case_id} is given {stray!r}, which its function does not take"
            raise UsageError(message, rule="environment.parameter.unknown")
        yield PlannedCase(
            case_id,
            f"{entry.path}/{name}" if entry.path else name,
            spec.handler,
            parameters,
            {**{key: one for key, one in fixed.items() if key in own}, **spec.arguments},
            spec.timeout_s or entry.timeout_s,
            spec.skipped,
        )


def _agree(segments: list[str], parts: list[str], template: list[str]) -> bool:
    return all(one in pair for one, *pair in zip(segments, parts, template, strict=False))
