"""Wiring of self-checks: a reference compiler in place of a submission, suite by suite."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.kernel import EnvironmentFault, Json, UsageError, explain_os_errors, write_atomic
from coilclaw.traces.environments import fixtures
from coilclaw.traces.environments.judge import open_judge
from coilclaw.workspace import command, search_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from coilclaw.traces.environments.judge import Judge
    from coilclaw.traces.environments.results import Case, Result


FILE: Final = "selfcheck.json"
"""Beside an environment's ``main.py``: which cases a reference compiler is known to fail."""
VERSION: Final = 1
MAX_BYTES: Final = 2**20
REFERENCE: Final = "reference"
FIXTURES: Final = "fixtures"
"""The parameters of an environment that can be self-checked."""

State: TypeAlias = Literal["proved", "differs", "scored", "missing"]

_REASONS: Final = {
    "compile_error": "it does not compile or link as one file by itself",
    "compile_timeout": "it takes too long to compile",
    "compile_crash": "the compiler crashes",
    "timeout": "it takes too long to run",
    "crash": "it ends by a signal",
    "wrong_output": "it prints",
    "wrong_exit_code": "it ends with another exit code",
}


@dataclass(frozen=True, slots=True)
class Expectation:
    """What an environment expects of a compiler."""

    proved_with: str
    failures: Mapping[str, str]
    """The reason by the id of a case."""


@dataclass(frozen=True, slots=True)
class SuiteCheck:
    """What a self-check found of one suite."""

    suite: str
    state: State
    passed: int = 0
    total: int = 0
    expected_total: int | None = None
    """From the fixtures that are pinned; ``None`` where nothing says."""
    expected_failures: tuple[str, ...] = ()
    failed: tuple[Case, ...] = ()
    """Against the expectation, or without one."""
    unexpected_passes: tuple[str, ...] = ()
    fixtures: str = ""
    """Of which version they are, or what is missing."""
    error: str | None = None
    """Why judging did not go as it should."""

    def json(self) -> dict[str, Json]:
        """Return the check as JSON."""
        failed: list[Json] = [
            {
                "id": case.id,
                "status": case.status,
                "failure_kind": case.failure_kind,
                "told": case.difference or case.log or "",
            }
            for case in self.failed
        ]
        return {**asdict(self), "failed": failed}


def expectation(directory: Path, compiler: str) -> Expectation | None:
    """Read what an environment expects of a compiler; ``None`` if it names none."""
    file = directory / FILE
    if not file.exists():
        return None
    with explain_os_errors(f"read {file}", rule="selfcheck.unreadable"), file.open("rb") as opened:
        data = opened.read(MAX_BYTES + 1)
    try:
        if len(data) > MAX_BYTES:
            raise ValueError(f"it is larger than {MAX_BYTES} bytes")
        document = json.loads(data)
        match document:
            case {"version": int(version), "compilers": list(given)} if version == VERSION:
                known = [_read_entry(one) for one in given]
            case _:
                raise ValueError(f"it has no version {VERSION}, or no list of compilers")
    except (ValueError, RecursionError) as problem:
        raise UsageError(f"{file}: {problem}", rule="selfcheck.declared") from problem
    for names, found in known:
        if any(fnmatchcase(compiler, name) for name in names):
            return found
    return None


def compare(
    suite: str,
    cases: Iterable[Case],
    known: Expectation | None,
    *,
    expected_total: int | None = None,
    fixtures: str = "",
) -> SuiteCheck:
    """Hold the cases of a suite to what is expected of them."""
    there = list(cases)
    failures = {} if known is None else known.failures
    passed = {case.id for case in there if case.passed}
    failed = tuple(case for case in there if not case.passed and case.id not in failures)
    ids = {case.id for case in there}
    expected = tuple(name for name in failures if name in ids)
    surprising = tuple(name for name in expected if name in passed)
    complete = expected_total is None or expected_total == len(there)
    state: State = "scored"
    if known is not None:
        state = "proved" if complete and not failed and not surprising else "differs"
    return SuiteCheck(
        suite=suite,
        state=state,
        passed=len(passed),
        total=len(there),
        expected_total=expected_total,
        expected_failures=tuple(name for name in expected if name not in passed),
        failed=failed,
        unexpected_passes=surprising,
        fixtures=fixtures,
    )


def list_left_out(suite: str, cases: Iterable[Case], compiler: str, sha256: str) -> dict[str, Json]:
    """Return what a reference compiler fails, in the form of the file that leaves it out."""
    there = sorted(cases, key=lambda case: case.name)
    kinds = {case.name: case.failure_kind or case.status for case in there if not case.passed}
    return {
        "suite": suite,
        "compiler": compiler,
        "fixtures_sha256": sha256,
        "programs": len(there),
        "left_out": {
            name: f"{kind}: {_REASONS[kind]}" if kind in _REASONS else kind
            for name, kind in kinds.items()
        },
    }


def _read_entry(value: object) -> tuple[list[str], Expectation]:
    match value:
        case {"names": list(names), "proved_with": str(proved), "failures": dict(failures)} if all(
            isinstance(text, str) and text for text in (*names, *failures.values())
        ):
            return names, Expectation(proved, failures)
    raise ValueError("a compiler has names, proved_with, and failures with their reasons")


VERSION_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Compiler:
    """A reference compiler."""

    path: str
    version: str

    @property
    def name(self) -> str:
        return os.path.basename(self.path)


class SelfCheck:
    """Holds an environment's suites to a reference compiler."""

    def __init__(
        self,
        name: str,
        home: Path,
        environ: Mapping[str, str],
        compiler: Compiler,
        root: Path,
        *,
        jobs: int | None = None,
    ) -> None:
        self.compiler = compiler
        self.root = root
        self.name = name
        self._open = partial(open_judge, home=home, environ=environ, jobs=jobs)
        self._judge = self._open(name)
        self._params: dict[str, Json] = {REFERENCE: compiler.path, FIXTURES: str(root)}
        directory = self._judge.place.directory
        self.known: Expectation | None = expectation(directory, compiler.name)
        sets = fixtures.read_declared(directory)
        self._found = {one.suite: fixtures.find(one, root) for one in sets}

    def suites(self, wanted: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the top suites, all of them or the wanted ones."""
        try:
            cases = self._judge.cases(params=self._params)
        except UsageError as problem:
            if problem.rule != "environment.parameter.unknown":
                raise
            message = f"the environment {self.name} cannot be checked with a compiler"
            hint = f"its tests have to take {FIXTURES} and {REFERENCE}"
            raise UsageError(message, rule="selfcheck.environment", hint=hint) from problem
        there = tuple(dict.fromkeys(case.split("/")[0] for case in cases))
        for name in wanted:
            if name.split("/")[0] not in there:
                hint = f"there are {', '.join(there)}"
                message = f"the suite {name!r} does not exist"
                raise UsageError(message, rule="selfcheck.suite", hint=hint)
        return tuple(dict.fromkeys(wanted)) or there

    def check(self, suite: str, observe: Callable[[Case], None] | None = None) -> SuiteCheck:
        """Judge one suite, or a part of one, by what the reference compiler makes of it."""
        top = suite.split("/", maxsplit=1)[0]
        found = self._found.get(top)
        if found is not None and found.state == "missing":
            return SuiteCheck(suite, "missing", fixtures=f"{found.wanted.name} is not installed")
        whole = found is not None and found.state == "pinned" and suite == top
        said = ""
        if found is not None:
            pinned = found.wanted
            other = f"{pinned.name} in another version: {found.sha256}, pinned is {pinned.sha256}"
            said = f"{pinned.name} as pinned" if found.state == "pinned" else other
        result = _judge_suite(self._judge, suite, self._params, observe)
        made = compare(
            suite,
            result.every_case(),
            self.known,
            expected_total=found.wanted.programs if found is not None and whole else None,
            fixtures=said,
        )
        if result.error is None:
            return made
        return replace(made, state="differs", error=result.error)

    def derive(self, suite: str, observe: Callable[[Case], None] | None = None) -> dict[str, Json]:
        """Find out which programs of a suite the compiler cannot do, with nothing left out."""
        found = self._found.get(suite)
        if found is None or found.wanted.left_out is None:
            names = [one for one, set_ in self._found.items() if set_.wanted.left_out]
            message = f"nothing is left out of the suite {suite!r}"
            hint = f"there is {', '.join(names) or 'no suite of that kind'}"
            raise UsageError(message, rule="selfcheck.derive", hint=hint)
        if found.sha256 is None:
            message = f"the fixtures {found.wanted.name} are not in {self.root}"
            raise UsageError(message, rule="fixtures.missing")
        with _copy_without(self._judge.place.directory, found.wanted.left_out, suite) as directory:
            judge = self._open(str(directory))
            result = _judge_suite(judge, suite, self._params, observe)
        if result.error is not None:
            message = f"{suite} could not be judged: {result.error}"
            raise EnvironmentFault(message, rule="selfcheck.derive")
        return list_left_out(suite, result.every_case(), self.compiler.version, found.sha256)

    def keep(self, suite: str, made: dict[str, Json], output: Path | None) -> Path:
        """Write what was derived: as the environment's own file, unless another is named."""
        left_out = self._found[suite].wanted.left_out
        assert left_out is not None
        file = output or self._judge.place.directory / left_out
        write_atomic(file, (json.dumps(made, indent=2) + "\n").encode())
        return file


def find_compiler(name: str) -> Compiler:
    """Find a compiler by its name or path, and ask it for its version."""
    path = shutil.which(name, path=search_path())
    if path is None:
        message = f"the compiler {name!r} was not found on this machine"
        raise UsageError(message, rule="selfcheck.compiler")
    full = os.path.abspath(path)
    for flag in ("--version", "-v"):
        said = command.run([full, flag], cwd="/", timeout_s=VERSION_S)
        lines = (said.stdout.text() or said.stderr.text()).strip().splitlines()
        if said.exit_code == 0 and lines:
            return Compiler(full, lines[0][:200])
    return Compiler(full, os.path.basename(full))


def _judge_suite(
    judge: Judge, suite: str, params: dict[str, Json], observe: Callable[[Case], None] | None
) -> Result:
    with tempfile.TemporaryDirectory() as nothing:
        return judge.test(Path(nothing), suite, params=params, observe=observe)


@contextmanager
def _copy_without(directory: Path, left_out: str, suite: str) -> Iterator[Path]:
    """Yield a copy of an environment that leaves nothing out of a suite."""
    with tempfile.TemporaryDirectory() as above:
        made = Path(above) / directory.name
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(directory, made, symlinks=True, ignore=ignored)
        (made / left_out).write_text(json.dumps(list_left_out(suite, (), "", "")))
        yield made
