"""Wiring of self-checks: a reference compiler in place of a submission, suite by suite."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.app.environments import judge_of
from coilclaw.environments import fixtures, selfchecking
from coilclaw.environments.selfchecking import SuiteCheck, compare, expectation
from coilclaw.errors import EnvironmentFault, UsageError
from coilclaw.storage.atomic import write_atomic
from coilclaw.workspace import process
from coilclaw.workspace.environment import search_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from coilclaw.domain.messages import Json
    from coilclaw.environments.fixtures import Found
    from coilclaw.environments.judging import Judge
    from coilclaw.environments.results import Case, Result
    from coilclaw.environments.selfchecking import Expectation

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
        self, name: str, home: Path, compiler: Compiler, root: Path, *, jobs: int | None = None
    ) -> None:
        self.compiler = compiler
        self.root = root
        self.name = name
        self._home = home
        self._jobs = jobs
        self._judge = judge_of(name, home, jobs=jobs)
        self._params: dict[str, Json] = {
            selfchecking.REFERENCE: compiler.path,
            selfchecking.FIXTURES: str(root),
        }
        directory = self._judge.place.directory
        self.known: Expectation | None = expectation(directory, compiler.name)
        sets = fixtures.declared(directory)
        self._found = {one.suite: fixtures.find(one, root) for one in sets}

    def suites(self, wanted: Sequence[str] = ()) -> tuple[str, ...]:
        """The suites at the top, all of them or those that are wanted."""
        try:
            cases = self._judge.cases(params=self._params)
        except UsageError as problem:
            if problem.rule != "environment.parameter.unknown":
                raise
            raise UsageError(
                f"the environment {self.name} cannot be checked with a compiler",
                rule="selfcheck.environment",
                hint=f"its tests have to take {selfchecking.FIXTURES} and {selfchecking.REFERENCE}",
            ) from problem
        there = tuple(dict.fromkeys(case.split("/")[0] for case in cases))
        for name in wanted:
            if name.split("/")[0] not in there:
                raise UsageError(
                    f"there is no suite {name!r}",
                    rule="selfcheck.suite",
                    hint=f"there are {', '.join(there)}",
                )
        return tuple(dict.fromkeys(wanted)) or there

    def check(self, suite: str, observe: Callable[[Case], None] | None = None) -> SuiteCheck:
        """Judge one suite, or a part of one, by what the reference compiler makes of it."""
        top = suite.split("/", maxsplit=1)[0]
        found = self._found.get(top)
        if found is not None and found.state == "missing":
            return SuiteCheck(suite, "missing", fixtures=f"{found.wanted.name} is not there")
        whole = found is not None and found.state == "pinned" and suite == top
        result = _judged(self._judge, suite, self._params, observe)
        made = compare(
            suite,
            result.every_case(),
            self.known,
            expected_total=found.wanted.programs if found is not None and whole else None,
            fixtures="" if found is None else _told(found),
        )
        if result.error is None:
            return made
        return replace(made, state="differs", error=result.error)

    def derive(self, suite: str, observe: Callable[[Case], None] | None = None) -> dict[str, Json]:
        """Find out which programs of a suite the compiler cannot do, with nothing left out."""
        found = self._found.get(suite)
        if found is None or found.wanted.left_out is None:
            names = [one for one, set_ in self._found.items() if set_.wanted.left_out]
            raise UsageError(
                f"nothing is left out of the suite {suite!r}",
                rule="selfcheck.derive",
                hint=f"there is {', '.join(names) or 'no suite of that kind'}",
            )
        if found.sha256 is None:
            raise UsageError(
                f"the fixtures {found.wanted.name} are not in {self.root}", rule="fixtures.missing"
            )
        with _without(self._judge.place.directory, found.wanted.left_out, suite) as directory:
            judge = judge_of(str(directory), self._home, jobs=self._jobs)
            result = _judged(judge, suite, self._params, observe)
        if result.error is not None:
            raise EnvironmentFault(
                f"{suite} could not be judged: {result.error}", rule="selfcheck.derive"
            )
        return selfchecking.left_out(
            suite, result.every_case(), self.compiler.version, found.sha256
        )

    def keep(self, suite: str, made: dict[str, Json], output: Path | None) -> Path:
        """Write what was derived: as the environment's own file, unless another is named."""
        left_out = self._found[suite].wanted.left_out
        assert left_out is not None
        file = output or self._judge.place.directory / left_out
        write_atomic(file, (json.dumps(made, indent=2) + "\n").encode())
        return file


def compiler_of(name: str) -> Compiler:
    """Find a compiler by its name or path, and ask it for its version."""
    path = shutil.which(name, path=search_path())
    if path is None:
        raise UsageError(
            f"there is no compiler {name!r} on this machine", rule="selfcheck.compiler"
        )
    full = os.path.abspath(path)
    for flag in ("--version", "-v"):
        said = process.run([full, flag], cwd="/", timeout_s=VERSION_S)
        lines = (said.stdout.text() or said.stderr.text()).strip().splitlines()
        if said.exit_code == 0 and lines:
            return Compiler(full, lines[0][:200])
    return Compiler(full, os.path.basename(full))


def _judged(
    judge: Judge, suite: str, params: dict[str, Json], observe: Callable[[Case], None] | None
) -> Result:
    with tempfile.TemporaryDirectory() as nothing:
        return judge.test(Path(nothing), suite, params=params, observe=observe)


@contextmanager
def _without(directory: Path, left_out: str, suite: str) -> Iterator[Path]:
    """A copy of an environment that leaves nothing out of a suite."""
    with tempfile.TemporaryDirectory() as above:
        made = Path(above) / directory.name
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(directory, made, symlinks=True, ignore=ignored)
        (made / left_out).write_text(json.dumps(selfchecking.nothing_left_out(suite)))
        yield made


def _told(found: Found) -> str:
    if found.state == "pinned":
        return f"{found.wanted.name} as pinned"
    return (
        f"{found.wanted.name} in another version: {found.sha256}, pinned is {found.wanted.sha256}"
    )
