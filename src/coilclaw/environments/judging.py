"""``Judge``: holds a submission to an environment, in processes that nothing of it outlives."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import coilclaw
from coilclaw.environments.builds import Builds
from coilclaw.environments.results import Case, Result
from coilclaw.environments.wire import MAX_MESSAGE_BYTES, Request
from coilclaw.errors import CoilClawError, EnvironmentFault, Stopped, UsageError
from coilclaw.workspace import environment, process
from coilclaw.workspace.toolchain import RUST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coilclaw.domain.messages import Json
    from coilclaw.environments.builds import Build
    from coilclaw.environments.catalogue import EnvironmentPlace
    from coilclaw.environments.wire import Task
    from coilclaw.workspace.process import Cancellation, LiveProcess, ProcessResult
    from coilclaw.workspace.sandbox import SandboxSupport

DEFAULT_TIMEOUT_S: Final = 3600.0
MAX_JOBS: Final = 256
_log = logging.getLogger(__name__)
_WORKER: Final = "coilclaw.environments.worker"
_SCHEMA_TIMEOUT_S: Final = 120.0
_CLOSE_GRACE_S: Final = 5.0
_TOLD: Final = 2000
_KEPT: Final = (RUST, "COILCLAW_HOME")


@dataclass(slots=True)
class _Heard:
    """What a worker has said so far."""

    base: str = ""
    ids: tuple[str, ...] | None = None
    built: bool = False
    error: str | None = None
    keep: bool = False
    schema: dict[str, Json] | None = None
    cases: dict[str, Case] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)
    done: bool = False


class Judge:
    """Judges submissions by one environment; several threads may use it at once."""

    def __init__(
        self,
        place: EnvironmentPlace,
        *,
        support: SandboxSupport,
        home: Path,
        jobs: int = 1,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        hidden: tuple[Path, ...] = (),
    ) -> None:
        """``hidden`` is kept from programs that are tested, wherever it lies."""
        if not 1 <= jobs <= MAX_JOBS:
            raise UsageError(
                f"{jobs} cases at once are not possible",
                rule="environment.jobs",
                hint=f"from 1 to {MAX_JOBS}",
            )
        if not support.bubblewrap and not support.landlock_abi:
            _log.warning(
                "this machine has no sandbox: what is submitted to %s runs unconfined",
                place.name,
                extra={"event": "environment_unconfined", "fields": {"environment": place.name}},
            )
        self.place = place
        self.jobs = jobs
        self.timeout_s = timeout_s
        self._support = support
        self._builds = Builds(home)
        self._hidden = (place.directory, home, *hidden)

    def schema(self, *, cancel: Cancellation | None = None) -> dict[str, Json]:
        """Describe what the environment tests."""
        with self._builds.scratch() as scratch:
            request = self._request("schema", scratch, scratch)
            heard, _ = self._ask(request, _SCHEMA_TIMEOUT_S, cancel, _Heard())
        if heard.schema is None:
            raise _lost("it said nothing about its tests", self.place)
        return heard.schema

    def cases(self, path: str = "", *, params: Mapping[str, Json] | None = None) -> tuple[str, ...]:
        """The ids of the cases at a path, with these parameters; nothing is built or run."""
        with self._builds.scratch() as scratch:
            request = self._request("select", scratch, scratch, path, params)
            heard, _ = self._ask(request, _SCHEMA_TIMEOUT_S, None, _Heard())
        if heard.ids is None:
            raise _lost("it said nothing about its cases", self.place)
        return heard.ids

    def test(
        self,
        submission: Path,
        path: str = "",
        *,
        params: Mapping[str, Json] | None = None,
        cancel: Cancellation | None = None,
        observe: Callable[[Case], None] | None = None,
    ) -> Result:
        """Build a submission, unless that was done, and run the tests at a path.

        What is judged is a copy made from a snapshot, so that nothing can change meanwhile.
        A path that matches nothing is a ``UsageError``; everything else that a submission does
        wrong is a result. ``observe`` is shown each case when it is over.
        """
        began = time.monotonic()
        given = dict(params or {})
        snapshot = self._builds.take(submission)
        prepared = self._builds.prepared(snapshot, self.place.version, given, self.timeout_s)
        with prepared as build, self._builds.scratch() as scratch:
            heard = _Heard(built=build.built)
            request = self._request("test", build.tree, scratch, path, given, built=build.built)
            left = max(began + self.timeout_s - time.monotonic(), 1.0)
            heard, ending = self._ask(request, left, cancel, heard, build=build, observe=observe)
        return self._result(heard, ending)

    def _request(
        self,
        task: Task,
        session: Path,
        scratch: Path,
        path: str = "",
        params: Mapping[str, Json] | None = None,
        *,
        built: bool = False,
    ) -> Request:
        return Request(
            task=task,
            file=self.place.file,
            session=Path(os.path.realpath(session)),
            scratch=Path(os.path.realpath(scratch)),
            path=path,
            params=params or {},
            jobs=self.jobs,
            built=built,
            support=self._support,
            hidden=self._hidden,
        )

    def _ask(
        self,
        request: Request,
        timeout_s: float,
        cancel: Cancellation | None,
        heard: _Heard,
        *,
        build: Build | None = None,
        observe: Callable[[Case], None] | None = None,
    ) -> tuple[_Heard, ProcessResult]:
        """Have a worker do it, and listen to what it says."""
        with process.open(
            [sys.executable, "-P", "-B", "-X", "utf8", "-m", _WORKER],
            cwd=request.scratch,
            timeout_s=timeout_s,
            env=worker_environ(),
            cancel=cancel,
        ) as live:
            _send(live, request)
            while line := live.stdout.readline(MAX_MESSAGE_BYTES):
                if not line.endswith(b"\n"):
                    break  # cut off by its end
                self._hear(json.loads(line), heard)
                if heard.built and build is not None and heard.keep:
                    build.keep()
                    heard.keep = False
                if observe is not None and b'"kind": "case"' in line[:40]:
                    observe(next(reversed(heard.cases.values())))
            ending = live.close(_CLOSE_GRACE_S)
        if ending.outcome == "cancelled":
            reason = cancel.reason if cancel is not None else None
            raise Stopped(f"testing was stopped: {reason}", rule="environment.stopped")
        if not heard.done and heard.ids is None:
            raise _lost(_ended(ending, timeout_s), self.place)
        return heard, ending

    def _hear(self, said: dict[str, Json], heard: _Heard) -> None:
        match said:
            case {"kind": "schema", "schema": dict(schema)}:
                heard.schema = schema
            case {"kind": "selected", "base": str(base), "ids": list(ids)}:
                heard.base, heard.ids = base, tuple(map(str, ids))
            case {"kind": "built", "error": str() | None as error, "keep": bool(keep)}:
                heard.built, heard.keep, heard.error = True, keep, error
            case {"kind": "case", "case": dict(value)}:
                case = Case.of(value)
                heard.cases[case.id] = case
            case {"kind": "trouble", "message": str(message)}:
                heard.troubles.append(message)
            case {"kind": "done"}:
                heard.done = True
            case {"kind": "problem"}:
                raise problem_of(said)
            case _:
                raise _lost("it said something that is not understood", self.place)

    def _result(self, heard: _Heard, ending: ProcessResult) -> Result:
        assert heard.ids is not None
        errors = list(heard.troubles)
        if heard.error is not None:
            errors.insert(0, f"the build failed: {heard.error}")
        elif not heard.done:
            errors.insert(0, _ended(ending, self.timeout_s))
        late = ending.outcome == "timed_out"
        cases = [
            heard.cases.get(name) or _unheard(name, late=late, built=heard.error is None)
            for name in heard.ids
        ]
        return Result.build(cases, heard.base, "\n".join(errors) or None)


def _unheard(name: str, *, late: bool, built: bool) -> Case:
    if not built:
        return Case(id=name, status="failed", duration_ms=0, failure_kind="build")
    if late:
        return Case(id=name, status="timeout", duration_ms=0, failure_kind="time_limit")
    return Case(id=name, status="error", duration_ms=0, failure_kind="judge_lost")


def _send(live: LiveProcess, request: Request) -> None:
    try:
        live.stdin.write(request.encode())
    except BrokenPipeError:
        return  # how it ended says why


def worker_environ() -> dict[str, str]:
    """The environment of a process that runs an environment's code."""
    package = str(Path(coilclaw.__file__).parents[1])
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {**environment.minimal(), **kept, "PYTHONPATH": package}


def problem_of(said: dict[str, Json]) -> CoilClawError:
    """The error that such a process told of."""
    kind = UsageError if said.get("usage") else EnvironmentFault
    hint = said.get("hint")
    problem = kind(
        str(said.get("message")),
        rule=str(said.get("rule")),
        hint=None if hint is None else str(hint),
    )
    problem.where = cast("str | None", said.get("where"))
    return problem


def _ended(ending: ProcessResult, timeout_s: float) -> str:
    if ending.outcome == "timed_out":
        return f"the tests took more than {timeout_s:g} seconds"
    how = f"exit code {ending.exit_code}" if ending.signal is None else f"signal {ending.signal}"
    said = ending.stderr.text().strip()[-_TOLD:]
    return f"the process that ran the tests ended with {how}" + (f":\n{said}" if said else "")


def _lost(why: str, place: EnvironmentPlace) -> EnvironmentFault:
    return EnvironmentFault(
        f"the environment {place.name} could not be used: {why}", rule="environment.worker"
    )
