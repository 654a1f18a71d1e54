"""``Environment``: everything that a file declared, and the cases at a path of it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Final

from coilclaw.environments.naming import check_path, name_of, unknown_path
from coilclaw.environments.parameters import (
    Parameter,
    bind_named,
    parameters_of,
    parameters_schema,
)
from coilclaw.environments.registry import CaseSpec
from coilclaw.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from coilclaw.domain.messages import Json
    from coilclaw.environments.naming import Value
    from coilclaw.environments.registry import Entry, Handler, Hook

SCHEMA_VERSION: Final = 1
MAX_CASES: Final = 100_000


@dataclass(frozen=True, slots=True)
class Planned:
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
    cases: tuple[Planned, ...]


@dataclass(frozen=True, slots=True)
class Environment:
    """A loaded environment."""

    file: Path
    entries: tuple[Entry, ...]
    setup: Hook | None
    teardown: Hook | None

    def select(self, path: str = "", given: Mapping[str, Json] | None = None) -> Selection:
        """Return the cases at a path: of a case, a shard, a suite, or all of them.

        The text of a template stands for all that it stands for. Which cases there are may depend
        on the parameters that are given.
        """
        wanted = check_path(path)
        segments = tuple(wanted.split("/")) if wanted else ()
        planned = self._planned(segments, given or {})
        found = [case for case in planned if _matches(segments, case)]
        if not found:
            raise unknown_path(wanted, self.paths(given)) if wanted else _empty(self.file)
        literal = all(_is_below(case.id, wanted) for case in found) if wanted else True
        return Selection(wanted if literal else _shared(found), tuple(found))

    def paths(self, given: Mapping[str, Json] | None = None) -> Iterator[str]:
        """Yield every path that can be asked for: suites, shards and cases."""
        for case in self._planned((), given or {}):
            parts = case.id.split("/")
            for end in range(1, len(parts) + 1):
                yield "/".join(parts[:end])

    def check_given(self, given: Mapping[str, Json], selection: Selection) -> None:
        """Refuse a parameter that nobody takes."""
        takers = [(case.parameters, case.fixed) for case in selection.cases]
        takers += [(hook.parameters, {}) for hook in (self.setup, self.teardown) if hook]
        takers += [
            (entry.parameters, dict.fromkeys(entry.fields)) for entry in self.entries if entry.many
        ]
        known = {
            one.name
            for parameters, fixed in takers
            for one in parameters
            if not one.is_documents and one.name not in fixed
        }
        unknown = sorted(set(given) - known)
        if unknown:
            raise UsageError(
                f"no test here takes a parameter {unknown[0]!r}",
                rule="environment.parameter.unknown",
                hint=f"the parameters are {', '.join(sorted(known)) or '(none)'}",
            )

    def schema(self) -> dict[str, Json]:
        """Describe what there is to test, for people and programs."""
        tests: list[Json] = []
        for entry in self.entries:
            own = tuple(one for one in entry.parameters if one.name not in entry.fields)
            values: dict[str, Json] = {
                one: list(given) for name in entry.names for one, given in name.values
            }
            tests.append(
                {
                    "path": entry.path,
                    "kind": "cases" if entry.many else "test",
                    "values": values,
                    "params_schema": parameters_schema(own),
                    "description": entry.description,
                    "timeout_s": entry.timeout_s,
                }
            )
        return {
            "schema_version": SCHEMA_VERSION,
            "has_setup": self.setup is not None,
            "has_teardown": self.teardown is not None,
            "setup_params_schema": parameters_schema(self.setup.parameters) if self.setup else None,
            "tests": tests,
            "cases": [case.id for case in self._planned((), {})],
        }

    def _planned(self, segments: tuple[str, ...], given: Mapping[str, Json]) -> Iterator[Planned]:
        """Yield the cases in the order of their declaration; most others are not even made."""
        seen: set[str] = set()
        suites: set[str] = set()
        for entry in self.entries:
            for case in _cases_of(entry, segments, given):
                parts = case.id.split("/")
                above = {"/".join(parts[:end]) for end in range(1, len(parts))}
                if case.id in seen or case.id in suites or above & seen:
                    raise UsageError(
                        f"{case.id} is declared twice, or as a test and as a suite",
                        rule="environment.twice",
                    )
                seen.add(case.id)
                suites |= above
                if len(seen) > MAX_CASES:
                    raise UsageError(
                        f"there are more than {MAX_CASES} cases", rule="environment.bounds"
                    )
                yield case


def _cases_of(
    entry: Entry, segments: tuple[str, ...], given: Mapping[str, Json]
) -> Iterator[Planned]:
    template = tuple(name.text for name in entry.names)
    for chosen in product(*(list(name.expand()) for name in entry.names)):
        parts = tuple(text for text, _ in chosen)
        if not _agree(segments, parts, template):
            continue
        values: dict[str, Value] = {key: one for _, made in chosen for key, one in made.items()}
        known = {one.name for one in entry.parameters}
        fixed = {key: one for key, one in values.items() if key in known}
        if entry.many:
            path = "/".join(parts)
            what = f"the cases of {path or 'the environment'}"
            yield from _generated(entry, path, fixed, bind_named(entry.parameters, given, what))
        else:
            yield Planned(
                "/".join(parts),
                entry.path,
                entry.handler,
                entry.parameters,
                fixed,
                entry.timeout_s,
            )


def _generated(
    entry: Entry, path: str, fixed: Mapping[str, object], asked: Mapping[str, object]
) -> Iterator[Planned]:
    made = entry.handler(**{**asked, **fixed})
    if not hasattr(made, "__iter__"):
        raise UsageError(
            f"the function of the cases of {path or 'the environment'} returned no cases",
            rule="environment.cases",
        )
    for spec in made:
        if not isinstance(spec, CaseSpec):
            raise UsageError(
                f"a function of cases gave {type(spec).__name__} instead of case(…)",
                rule="environment.cases",
            )
        name = name_of(spec.name, {}).text
        case_id = f"{path}/{name}" if path else name
        parameters = parameters_of(spec.handler, case_id)
        stray = sorted(set(spec.arguments) - {one.name for one in parameters})
        if stray:
            raise UsageError(
                f"{case_id} is given {stray[0]!r}, which its function does not take",
                rule="environment.parameter.unknown",
            )
        own = {one.name for one in parameters}
        given = {key: one for key, one in fixed.items() if key in own}
        yield Planned(
            case_id,
            f"{entry.path}/{name}" if entry.path else name,
            spec.handler,
            parameters,
            {**given, **spec.arguments},
            spec.timeout_s or entry.timeout_s,
            spec.skipped,
        )


def _matches(segments: tuple[str, ...], case: Planned) -> bool:
    parts, template = case.id.split("/"), case.template.split("/")
    return len(segments) <= len(parts) and _agree(segments, tuple(parts), tuple(template))


def _agree(segments: tuple[str, ...], parts: tuple[str, ...], template: tuple[str, ...]) -> bool:
    return all(one in pair for one, *pair in zip(segments, parts, template, strict=False))


def _shared(cases: list[Planned]) -> str:
    """The deepest suite that all of the cases are in."""
    parts = [case.id.split("/")[:-1] for case in cases]
    shared = []
    for level in zip(*parts, strict=False):
        if len(set(level)) > 1:
            break
        shared.append(level[0])
    return "/".join(shared)


def _is_below(case_id: str, path: str) -> bool:
    return case_id == path or case_id.startswith(f"{path}/")


def _empty(file: Path) -> UsageError:
    return UsageError(f"{file} declares no tests", rule="environment.empty")
