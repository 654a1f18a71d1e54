"""``Bench``: the environment's tests during a trajectory: who calls them, and how far they are.

A path counts as solved while the last result that covers it is green; a regression takes that back.
The whole is solved when every required path was green on the very tree that is there now.
"""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

from coilclaw.kernel import CoilClawError, EnvironmentFault, digest_bytes, write_atomic
from coilclaw.traces.environments.results import Delta, Result, compact
from coilclaw.traces.trajectory import trace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from coilclaw.workspace import Cancellation


TOOL: Final = "run_tests"
"""What every agent's own name for the tool holds."""
MAX_TESTS: Final = 10_000
"""Cases that a call lists in the trace; the whole result is on disk."""
MAX_CALLS_A_PART: Final = 64
MAX_ANSWER_CHARS: Final = 6000
MAX_ERROR_BYTES: Final = 2**14
MAX_PATH_BYTES: Final = 1000
_WELL: Final = frozenset({"passed", "skipped"})


class Judging(Protocol):
    """Tests a submission; ``environments.judging.Judge`` is one."""

    def test(self, submission: Path, path: str = "", *, cancel: Cancellation) -> Result: ...


class EnvoiFailed(EnvironmentFault):
    """The tests themselves could not be run; ``calls`` are those that were made."""

    rule = "envoi.failed"

    def __init__(self, message: str, calls: tuple[trace.EnvoiCall, ...]) -> None:
        super().__init__(message)
        self.calls = calls


@dataclass(slots=True)
class SuiteStanding:
    """What is known of every case and path."""

    required: tuple[str, ...]
    statuses: dict[str, str] = field(default_factory=dict)
    green: dict[str, str] = field(default_factory=dict)
    """The tree on which a required path was last seen green, while it is."""
    known: dict[str, str] = field(default_factory=dict)
    """The tree on which a required path was last seen at all."""
    ever: set[str] = field(default_factory=set)
    latest: trace.EnvoiCall | None = None

    def take(self, call: trace.EnvoiCall) -> None:
        """Learn from a call."""
        self.latest = call
        if call.result is None:
            return
        found = {test.id: test.status for test in call.result.tests}
        # Of very many cases only the first are listed, and the rest may be anything.
        listed = sum(status == "passed" for status in found.values()) == call.result.passed
        whole = listed and call.error is None
        for path in self.required:
            if _covers(call.path, path):
                mine = {status for name, status in found.items() if _covers(path, name)}
                self.known[path] = call.tree
                self.green.pop(path, None)
                if whole and "passed" in mine and mine <= _WELL:
                    self.green[path] = call.tree
                    self.ever.add(path)
            elif any(_covers(path, name) and found[name] not in _WELL for name in found):
                self.green.pop(path, None)
        self.statuses.update(found)

    def is_solved(self, tree: str) -> bool:
        """Return whether every required path is green on a tree."""
        return bool(self.required) and all(self.green.get(path) == tree for path in self.required)

    def unknown(self, tree: str) -> tuple[str, ...]:
        """Return the required paths that were not tested on a tree yet."""
        return tuple(path for path in self.required if self.known.get(path) != tree)

    def change(self, found: Mapping[str, str]) -> Delta:
        """Return what broke and what was fixed since each case was last seen."""
        return Delta.between(self.statuses, found)

    def state(self) -> trace.TestingState:
        last = self.latest
        result = None if last is None else last.result
        return trace.TestingState(
            solved_paths=len(self.green),
            total_paths=len(self.required),
            ever_solved_paths=len(self.ever),
            latest_path=None if last is None else last.path,
            latest_passed=None if result is None else result.passed,
            latest_total=None if result is None else result.total,
            latest_status_code=None if last is None else last.status_code,
            latest_error=None if last is None else last.error,
        )


@dataclass(slots=True)
class SuiteHarness:
    """Runs the tests for the agent and for us, one call at a time, and keeps what came out."""

    judge: Judging | None
    files_of: Callable[[str], Path]
    """What is judged is the tree that is recorded: neither what an agent makes of its workspace
    meanwhile, nor what it keeps there that no commit holds."""
    results: Path
    _: KW_ONLY
    standing: SuiteStanding
    tree: Callable[[], str]
    stamp: Callable[[], str]
    cancel: Cancellation
    redact: Callable[[str], str]
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _pending: list[trace.EnvoiCall] = field(default_factory=list)

    @property
    def run_tests(self) -> Callable[[str], str] | None:
        """What an agent gets."""
        return None if self.judge is None else self._for_agent

    def state(self) -> trace.TestingState | None:
        return None if self.judge is None else self.standing.state()

    def shown_by(self, tool: str, given: str) -> tuple[trace.EnvoiCall, ...]:
        """Return the call of the tests that a part shows, if any.

        An agent works while its parts are recorded, and tests may have begun or ended since.
        """
        if TOOL not in tool:
            return ()
        with self._lock:
            paths = [call.path for call in self._pending]
            wanted = _read_path(given)
            at = paths.index(wanted) if wanted in paths else 0
            return (self._pending.pop(at),) if paths else ()

    def drain(self) -> tuple[trace.EnvoiCall, ...]:
        """Return the calls that no part has shown; they belong to the turn."""
        with self._lock:
            calls, self._pending = self._pending, []
        return tuple(calls)

    def evaluate(self, tree: str) -> tuple[trace.EnvoiCall, ...]:
        """Test what is required and was not tested on this tree; tests that cannot run raise."""
        calls = []
        unknown = self.standing.unknown(tree)
        # All of them at once: that is one start of the tests instead of many.
        for path in ("",) if unknown == self.standing.required and unknown else unknown:
            with self._one_at_a_time:
                call, _ = self._call(path, tree)
            calls.append(call)
            if call.status_code != 200:
                where = path or "the top"
                message = f"the tests at {where} could not be run: {call.error}"
                raise EnvoiFailed(message, tuple(calls))
        return tuple(calls)

    def _for_agent(self, path: str) -> str:
        with self._one_at_a_time:
            if len(self._pending) >= MAX_CALLS_A_PART:
                return "too many calls at once: the tests were not run"
            try:
                tree = self.tree()
            except EnvironmentFault as problem:
                return f"the tests could not be run: {self._clean(problem.message)}"
            call, text = self._call(_strip_slashes(path), tree)
            with self._lock:
                self._pending.append(call)
        return text

    def _call(self, path: str, tree: str) -> tuple[trace.EnvoiCall, str]:
        stamp, began = self.stamp(), time.monotonic()
        call = trace.EnvoiCall(
            path=trace.bound_text(self.redact(path), MAX_PATH_BYTES),
            timestamp=stamp,
            duration_ms=0,
            status_code=500,
            error=None,
            result=None,
            call_id=f"call-{os.urandom(8).hex()}",
            tree=tree,
            newly_broken=(),
            newly_fixed=(),
        )
        try:
            result = self._judge_tree(tree, path)
        except CoilClawError as problem:
            error = self._clean(problem.message)
            call = replace(call, duration_ms=_measure_ms(began), error=error)
            hint = f"\n{problem.hint}" if problem.hint else ""
            text = f"the tests could not be run: {error}{hint}"
        else:
            change = self.standing.change(result.statuses())
            call = replace(
                call,
                path=path,
                duration_ms=_measure_ms(began),
                status_code=200,
                error=self._clean(result.error) if result.error else None,
                result=_list_cases(result),
                newly_broken=change.newly_broken[:MAX_TESTS],
                newly_fixed=change.newly_fixed[:MAX_TESTS],
                result_sha256=self._keep(call.call_id, path, tree, result),
            )
            text = self.redact(compact(result, change, call.call_id, MAX_ANSWER_CHARS))
        self.standing.take(call)
        return call, text

    def _judge_tree(self, tree: str, path: str) -> Result:
        assert self.judge is not None, "tests are asked for only where there are some"
        try:
            return self.judge.test(self.files_of(tree), path, cancel=self.cancel)
        except OSError as problem:
            # Paths that are too long to be copied, a disk that is full.
            message = f"the files cannot be tested: {problem.strerror}"
            raise EnvironmentFault(message, rule="envoi.files") from problem

    def _clean(self, error: str) -> str:
        return trace.bound_text(self.redact(trace.replace_surrogates(error)), MAX_ERROR_BYTES)

    def _keep(self, call_id: str, path: str, tree: str, result: Result) -> str:
        document = {"call_id": call_id, "path": path, "tree": tree, "result": result.json()}
        text = self.redact(json.dumps(document, ensure_ascii=True, separators=(",", ":")))
        data = text.encode("utf-8")
        self.results.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(self.results / f"{call_id}.json", data, mode=0o600)
        return digest_bytes(data)


def _strip_slashes(path: str) -> str:
    return path.strip().strip("/")


def _read_path(given: str) -> str | None:
    """Return the path of tests in the input of a part, or ``None``."""
    try:
        said = json.loads(given)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    path = said.get("test_path", said.get("path"))
    return _strip_slashes(path) if isinstance(path, str) else None


def _list_cases(result: Result) -> trace.CallResult:
    statuses = result.statuses()
    listed = [trace.CaseStatus(id=name, status=status) for name, status in statuses.items()]
    tests = tuple(listed[:MAX_TESTS])
    return trace.CallResult(
        passed=result.passed, failed=result.failed, total=result.total, tests=tests
    )


def _covers(path: str, other: str) -> bool:
    """Return whether one path is the other or above it; the empty one is above all."""
    return not path or other == path or other.startswith(f"{path}/")


def _measure_ms(began: float) -> int:
    return round((time.monotonic() - began) * 1000)


CONTINUE: Final = "Continue with the task: fix what fails, and do not break what passes."
MAX_PROMPT_PATHS: Final = 10
MAX_CASES: Final = 20


def render_later_prompt(standing: SuiteStanding | None, calls: Sequence[trace.EnvoiCall]) -> str:
    """Return the prompt of a later turn; ``calls`` are those since the turn before."""
    if standing is None or not standing.required:
        return CONTINUE
    lines = [CONTINUE, "", "Current test status:", *_render_progress(standing)]
    for kind, passed in (("broken", False), ("fixed", True)):
        # The cases that changed in one of the calls and are still so.
        changed = {name: None for call in calls for name in getattr(call, f"newly_{kind}")}
        names = [name for name in changed if (standing.statuses.get(name) == "passed") is passed]
        if names:
            more = f" and {len(names) - MAX_CASES} more" if len(names) > MAX_CASES else ""
            lines += ["", f"Newly {kind}: {', '.join(names[:MAX_CASES])}{more}"]
    last = standing.latest
    if last is not None and last.error:
        lines += ["", f"The last run of the tests said: {last.error}"]
    return "\n".join(lines)


def _render_progress(standing: SuiteStanding) -> list[str]:
    """Return a line for every path that is not solved, with its passed cases."""
    if not standing.statuses:
        return ["- no test was run yet"]
    rows = []
    for path, (passed, total) in _count_cases(standing).items():
        if passed < total or not total:
            rows.append(f"- {path}: {passed}/{total}" if total else f"- {path}: not run")
    if not rows:
        return ["- everything that was run passes"]
    more = len(rows) - MAX_PROMPT_PATHS
    return rows[:MAX_PROMPT_PATHS] + ([f"- and {more} more paths"] if more > 0 else [])


def _count_cases(standing: SuiteStanding) -> dict[str, tuple[int, int]]:
    paths = list(standing.required)
    if paths == [""]:
        paths = sorted({name.partition("/")[0] for name in standing.statuses})
    counted: dict[str, tuple[int, int]] = dict.fromkeys(paths, (0, 0))
    for name, status in standing.statuses.items():
        path = next((p for p in paths if name == p or name.startswith(f"{p}/")), None)
        if path is not None and status != "skipped":
            passed, total = counted[path]
            counted[path] = (passed + (status == "passed"), total + 1)
    return counted
