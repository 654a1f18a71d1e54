"""``Judge``: holds a submission to an environment, in processes that nothing of it outlives."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import coilclaw
from coilclaw.kernel import CoilClawError, EnvironmentFault, Json, Stopped, UsageError
from coilclaw.traces.environments import fixtures
from coilclaw.traces.environments.builds import Builds, KeptBuild
from coilclaw.traces.environments.case_run import MAX_MESSAGE_BYTES, Request, Task
from coilclaw.traces.environments.catalogue import EnvironmentPlace, find_environment
from coilclaw.traces.environments.results import Case, Result, Status
from coilclaw.workspace import RUST, SandboxSupport, command, environment, probe_sandboxes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coilclaw.workspace import Cancellation, LiveProcess, ProcessResult

DEFAULT_TIMEOUT_S: Final = 3600.0
MAX_JOBS: Final = 256
_log = logging.getLogger(__name__)
_WORKER: Final = "coilclaw.traces.environments.worker"
_SCHEMA_TIMEOUT_S: Final = 120.0
_CLOSE_GRACE_S: Final = 5.0
_TOLD: Final = 2000
_KEPT: Final = (RUST, "COILCLAW_HOME")


@dataclass(slots=True)
class _Heard:
    """What a worker has reported so far."""

    base: str = ""
    ids: tuple[str, ...] | None = None
    error: str | None = None
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
        environ: Mapping[str, str],
        jobs: int = 1,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        hidden: tuple[Path, ...] = (),
    ) -> None:
        """``hidden`` is kept from programs that are tested, wherever it lies."""
        if not 1 <= jobs <= MAX_JOBS:
            message, hint = f"{jobs} cases at once are not possible", f"from 1 to {MAX_JOBS}"
            raise UsageError(message, rule="environment.jobs", hint=hint)
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
        self._environ = environ
        self._builds = Builds(home)
        self._hidden = (place.directory, home, *hidden)

    def schema(self, *, cancel: Cancellation | None = None) -> dict[str, Json]:
        """Describe what the environment tests."""
        schema = self._look("schema", cancel=cancel).schema
        if schema is None:
            raise self._make_fault("it did not describe its tests")
        return schema

    def cases(self, path: str = "", *, params: Mapping[str, Json] | None = None) -> tuple[str, ...]:
        """Return the ids of the cases at a path, with these parameters; nothing is built or run."""
        ids = self._look("select", path, params).ids
        if ids is None:
            raise self._make_fault("it did not list its cases")
        return ids

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
        prepared = self._builds.prepare_build(snapshot, self.place.version, given, self.timeout_s)
        with prepared as build, self._builds.scratch() as scratch:
            request = self._request("test", build.tree, scratch, path, given, built=build.built)
            left = max(began + self.timeout_s - time.monotonic(), 1.0)
            heard, ending = self._ask(request, left, cancel, build, observe)
        assert heard.ids is not None
        errors = list(heard.troubles)
        status: Status = "timeout" if ending.outcome == "timed_out" else "error"
        kind = "time_limit" if status == "timeout" else "judge_lost"
        if heard.error is not None:
            errors.insert(0, f"the build failed: {heard.error}")
            status, kind = "failed", "build"
        elif not heard.done:
            errors.insert(0, _describe_end(ending, self.timeout_s))
        cases = [
            heard.cases.get(name) or Case(id=name, status=status, duration_ms=0, failure_kind=kind)
            for name in heard.ids
        ]
        return Result.build(cases, heard.base, "\n".join(errors) or None)

    def _look(
        self,
        task: Task,
        path: str = "",
        params: Mapping[str, Json] | None = None,
        cancel: Cancellation | None = None,
    ) -> _Heard:
        with self._builds.scratch() as scratch:
            request = self._request(task, scratch, scratch, path, params)
            return self._ask(request, _SCHEMA_TIMEOUT_S, cancel)[0]

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
        build: KeptBuild | None = None,
        observe: Callable[[Case], None] | None = None,
    ) -> tuple[_Heard, ProcessResult]:
        """Send a request to a new worker, and collect its answers."""
        heard = _Heard()
        with start_worker(request.scratch, timeout_s, cancel, self._environ) as live:
            with suppress(BrokenPipeError):  # how it ended says why
                live.stdin.write(request.encode())
            while line := live.stdout.readline(MAX_MESSAGE_BYTES):
                if not line.endswith(b"\n"):
                    break  # cut off by its end
                self._hear(json.loads(line), heard, build, observe)
            ending = live.close(_CLOSE_GRACE_S)
        if ending.outcome == "cancelled":
            reason = cancel.reason if cancel is not None else None
            raise Stopped(f"testing was stopped: {reason}", rule="environment.stopped")
        if not heard.done and heard.ids is None:
            raise self._make_fault(_describe_end(ending, timeout_s))
        return heard, ending

    def _hear(
        self,
        said: dict[str, Json],
        heard: _Heard,
        build: KeptBuild | None,
        observe: Callable[[Case], None] | None,
    ) -> None:
        match said:
            case {"kind": "schema", "schema": dict(schema)}:
                heard.schema = schema
            case {"kind": "selected", "base": str(base), "ids": list(ids)}:
                heard.base, heard.ids = base, tuple(map(str, ids))
            case {"kind": "built", "error": str() | None as error, "keep": bool(keep)}:
                heard.error = error
                if keep and build is not None:
                    build.keep()
            case {"kind": "case", "case": dict(value)}:
                case = Case.of(value)
                heard.cases[case.id] = case
                if observe is not None:
                    observe(case)
            case {"kind": "trouble", "message": str(message)}:
                heard.troubles.append(message)
            case {"kind": "done"}:
                heard.done = True
            case {"kind": "problem"}:
                raise problem_of(said)
            case _:
                raise self._make_fault("it sent a message that is not understood")

    def _make_fault(self, why: str) -> EnvironmentFault:
        message = f"the environment {self.place.name} could not be used: {why}"
        return EnvironmentFault(message, rule="environment.worker")


def start_worker(
    directory: Path,
    timeout_s: float,
    cancel: Cancellation | None,
    environ: Mapping[str, str],
    *arguments: str,
) -> LiveProcess:
    """Start a process that runs an environment's code."""
    kept = {name: environ[name] for name in _KEPT if name in environ}
    package = str(Path(coilclaw.__file__).parents[1])
    return command.open(
        [sys.executable, "-P", "-B", "-X", "utf8", "-m", _WORKER, *arguments],
        cwd=directory,
        timeout_s=timeout_s,
        env={**environment.minimal(), **kept, "PYTHONPATH": package},
        cancel=cancel,
    )


def problem_of(said: dict[str, Json]) -> CoilClawError:
    """Return the error that a worker reported."""
    kind = UsageError if said.get("usage") else EnvironmentFault
    hint = cast("str | None", said.get("hint"))
    problem = kind(str(said.get("message")), rule=str(said.get("rule")), hint=hint)
    problem.where = cast("str | None", said.get("where"))
    return problem


def _describe_end(ending: ProcessResult, timeout_s: float) -> str:
    if ending.outcome == "timed_out":
        return f"the tests took more than {timeout_s:g} seconds"
    how = f"exit code {ending.exit_code}" if ending.signal is None else f"signal {ending.signal}"
    said = ending.stderr.text().strip()[-_TOLD:]
    return f"the process that ran the tests ended with {how}" + (f":\n{said}" if said else "")


FOLDER: Final = "environments"
"""Below our home: snapshots and builds of what was judged."""


def open_judge(
    name_or_path: str,
    home: Path,
    environ: Mapping[str, str],
    *,
    jobs: int | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    support: SandboxSupport | None = None,
) -> Judge:
    """Return the judge of an environment; ``jobs`` are as many as there are processors."""
    return Judge(
        find_environment(name_or_path),
        support=probe_sandboxes() if support is None else support,
        home=home / FOLDER,
        environ=environ,
        jobs=default_jobs() if jobs is None else jobs,
        timeout_s=timeout_s,
        # Tokens, keys, other people's work: wherever the home is, a submission sees none of it.
        hidden=(home,),
    )


@dataclass(frozen=True, slots=True)
class ReadyEnvironment:
    """What a result belongs to beside the tree: the environment, and the fixtures that it finds."""

    version: str
    skipped: tuple[str, ...] = ()
    """The suites whose fixtures are not there: none of their cases can be judged."""


def read_environment(place: EnvironmentPlace, home: Path) -> ReadyEnvironment:
    """Return what judging by an environment rests on; other fixtures make another version."""
    sets = fixtures.read_declared(place.directory)
    if not sets:
        return ReadyEnvironment(place.version)
    root = fixtures.default_root(home)
    found = [fixtures.find(one, root) for one in sets]
    whole = hashlib.sha256(f"coilclaw environment with fixtures 1\0{place.version}".encode())
    for one in found:
        whole.update(f"\0{one.wanted.name}\0{one.sha256 or one.state}".encode())
    skipped = tuple(one.wanted.suite for one in found if one.place is None)
    return ReadyEnvironment(whole.hexdigest(), skipped)


def default_jobs() -> int:
    """Return how many cases run at once by default."""
    return max(1, min(len(os.sched_getaffinity(0)), 16))
