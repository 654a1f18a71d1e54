"""``Bench``: the environment's tests during a trajectory: who calls them, and how far they are.

A path counts as solved while the last result that covers it is green; a regression takes that back.
The whole is solved when every required path was green on the very tree that is there now.
"""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from coilclaw.domain.canonical import digest
from coilclaw.environments.results import Delta, compact
from coilclaw.errors import CoilClawError, EnvironmentFault
from coilclaw.storage.atomic import write_atomic
from coilclaw.trajectory.texts import bounded, valid
from coilclaw.trajectory.trace import CallResult, CaseStatus, EnvoiCall, TestingState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from coilclaw.environments.results import Result
    from coilclaw.workspace.cancel import Cancellation

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

    def __init__(self, message: str, calls: tuple[EnvoiCall, ...]) -> None:
        super().__init__(message)
        self.calls = calls


@dataclass(slots=True)
class Standing:
    """What is known of every case and path."""

    required: tuple[str, ...]
    statuses: dict[str, str] = field(default_factory=dict)
    green: dict[str, str] = field(default_factory=dict)
    """The tree on which a required path was last seen green, while it is."""
    known: dict[str, str] = field(default_factory=dict)
    """The tree on which a required path was last seen at all."""
    ever: set[str] = field(default_factory=set)
    latest: EnvoiCall | None = None

    def take(self, call: EnvoiCall) -> None:
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
                self._covered(path, call, found, whole=whole)
            elif any(_covers(path, name) and found[name] not in _WELL for name in found):
                self.green.pop(path, None)
        self.statuses.update(found)

    def _covered(
        self, path: str, call: EnvoiCall, found: Mapping[str, str], *, whole: bool
    ) -> None:
        mine = [status for name, status in found.items() if _covers(path, name)]
        self.known[path] = call.tree
        if whole and "passed" in mine and _WELL.issuperset(mine):
            self.green[path] = call.tree
            self.ever.add(path)
        else:
            self.green.pop(path, None)

    def solved(self, tree: str) -> bool:
        """Whether everything that is required is green on a tree."""
        return bool(self.required) and all(self.green.get(path) == tree for path in self.required)

    def unknown(self, tree: str) -> tuple[str, ...]:
        """The required paths of which a tree was not asked yet."""
        return tuple(path for path in self.required if self.known.get(path) != tree)

    def change(self, found: Mapping[str, str]) -> Delta:
        """What broke and what was fixed since each case was last seen."""
        seen = self.statuses
        both = [
            name for name in found if name in seen and "skipped" not in {found[name], seen[name]}
        ]
        return Delta(
            tuple(name for name in both if seen[name] == "passed" != found[name]),
            tuple(name for name in both if seen[name] != "passed" == found[name]),
        )

    def state(self) -> TestingState:
        last = self.latest
        result = None if last is None else last.result
        return TestingState(
            solved_paths=len(self.green),
            total_paths=len(self.required),
            ever_solved_paths=len(self.ever),
            latest_path=None if last is None else last.path,
            latest_passed=None if result is None else result.passed,
            latest_total=None if result is None else result.total,
            latest_status_code=None if last is None else last.status_code,
            latest_error=None if last is None else last.error,
        )


class Bench:
    """Runs the tests for the agent and for us, one call at a time, and keeps what came out."""

    def __init__(
        self,
        judge: Judging | None,
        files_of: Callable[[str], Path],
        results: Path,
        *,
        standing: Standing,
        tree: Callable[[], str],
        stamp: Callable[[], str],
        cancel: Cancellation,
        redact: Callable[[str], str],
    ) -> None:
        self._judge = judge
        # What is judged is the tree that is recorded: neither what an agent makes of its workspace
        # meanwhile, nor what it keeps in there that no commit holds.
        self._files_of = files_of
        self._results = results
        self._tree = tree
        self._stamp = stamp
        self._cancel = cancel
        self._redact = redact
        self._one_at_a_time = threading.Lock()
        self._lock = threading.Lock()
        self._pending: list[EnvoiCall] = []
        self.standing = standing

    @property
    def run_tests(self) -> Callable[[str], str] | None:
        """What an agent gets."""
        return None if self._judge is None else self._for_agent

    def state(self) -> TestingState | None:
        return None if self._judge is None else self.standing.state()

    def shown_by(self, tool: str, given: str) -> tuple[EnvoiCall, ...]:
        """The call that a part shows, if it shows one.

        An agent goes on while its parts are recorded, and tests may have begun or ended since.
        """
        if TOOL not in tool:
            return ()
        with self._lock:
            paths = [call.path for call in self._pending]
            wanted = _path_in(given)
            at = paths.index(wanted) if wanted in paths else 0
            return (self._pending.pop(at),) if paths else ()

    def drain(self) -> tuple[EnvoiCall, ...]:
        """The calls that no part has shown; they belong to the turn."""
        with self._lock:
            calls, self._pending = self._pending, []
        return tuple(calls)

    def evaluate(self, tree: str) -> tuple[EnvoiCall, ...]:
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
                raise EnvoiFailed(
                    f"the tests at {where} could not be run: {call.error}", tuple(calls)
                )
        return tuple(calls)

    def _for_agent(self, path: str) -> str:
        with self._one_at_a_time:
            if len(self._pending) >= MAX_CALLS_A_PART:
                return "too many calls at once: the tests were not run"
            try:
                tree = self._tree()
            except EnvironmentFault as problem:
                return f"the tests could not be run: {self._told(problem.message)}"
            call, text = self._call(_bare(path), tree)
            with self._lock:
                self._pending.append(call)
        return text

    def _call(self, path: str, tree: str) -> tuple[EnvoiCall, str]:
        call_id = f"call-{os.urandom(8).hex()}"
        stamp, began = self._stamp(), time.monotonic()
        try:
            result = self._judged(tree, path)
        except CoilClawError as problem:
            error = self._told(problem.message)
            call = EnvoiCall(
                path=bounded(self._redact(path), MAX_PATH_BYTES),
                timestamp=stamp,
                duration_ms=_since(began),
                status_code=500,
                error=error,
                result=None,
                call_id=call_id,
                tree=tree,
                newly_broken=(),
                newly_fixed=(),
            )
            self.standing.take(call)
            hint = f"\n{problem.hint}" if problem.hint else ""
            return call, f"the tests could not be run: {error}{hint}"
        statuses = dict(result.statuses())
        change = self.standing.change(statuses)
        call = EnvoiCall(
            path=path,
            timestamp=stamp,
            duration_ms=_since(began),
            status_code=200,
            error=self._told(result.error) if result.error else None,
            result=_listed(result),
            call_id=call_id,
            tree=tree,
            newly_broken=change.newly_broken[:MAX_TESTS],
            newly_fixed=change.newly_fixed[:MAX_TESTS],
            result_sha256=self._keep(call_id, path, tree, result),
        )
        self.standing.take(call)
        return call, self._redact(compact(result, change, call_id, MAX_ANSWER_CHARS))

    def _judged(self, tree: str, path: str) -> Result:
        assert self._judge is not None, "nobody asks for tests where there are none"
        try:
            return self._judge.test(self._files_of(tree), path, cancel=self._cancel)
        except OSError as problem:
            # Paths that are too long to be copied, a disk that is full.
            raise EnvironmentFault(
                f"the files cannot be tested: {problem.strerror}", rule="envoi.files"
            ) from problem

    def _told(self, error: str) -> str:
        return bounded(self._redact(valid(error)), MAX_ERROR_BYTES)

    def _keep(self, call_id: str, path: str, tree: str, result: Result) -> str:
        document = {"call_id": call_id, "path": path, "tree": tree, "result": result.json()}
        text = self._redact(json.dumps(document, ensure_ascii=True, separators=(",", ":")))
        data = text.encode("utf-8")
        self._results.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(self._results / f"{call_id}.json", data, mode=0o600)
        return digest(data)


def _bare(path: str) -> str:
    return path.strip().strip("/")


def _path_in(given: str) -> str | None:
    """The path that a part's input names, whatever the agent calls it."""
    try:
        said = json.loads(given)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    path = said.get("test_path", said.get("path"))
    return _bare(path) if isinstance(path, str) else None


def _listed(result: Result) -> CallResult:
    statuses = result.statuses()
    listed = [CaseStatus(id=name, status=status) for name, status in statuses.items()]
    return CallResult(
        passed=result.passed,
        failed=result.failed,
        total=result.total,
        tests=tuple(listed[:MAX_TESTS]),
    )


def _covers(path: str, other: str) -> bool:
    """Whether one path is the other or above it; the empty one is above all."""
    return not path or other == path or other.startswith(f"{path}/")


def _since(began: float) -> int:
    return round((time.monotonic() - began) * 1000)
