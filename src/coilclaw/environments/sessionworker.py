"""The process of one session: ``python -m …sessionworker``. It builds once and tests many times.

The first line on its input is the request, with the parameters of the session; each further line
is a call, ``{"call": N, "path": …, "params": {…}}``, or the end, ``{"close": true}``. It answers
with one JSON object in each line: ``loaded``, ``built``; for a call ``selected``, ``case``… and
``called``, or ``problem``; at last ``closed``. When its input ends, so does the session.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
import traceback
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeVar

from coilclaw.environments.handling import Handling, Trouble
from coilclaw.environments.loading import load
from coilclaw.environments.parameters import Documents
from coilclaw.environments.results import Case
from coilclaw.environments.scheduling import GRACE_S, run_cases
from coilclaw.environments.sessionplaces import hold
from coilclaw.environments.wire import MAX_REQUEST_BYTES, Request
from coilclaw.environments.worker import Answers, Printed, told
from coilclaw.errors import CoilClawError, EnvironmentFault
from coilclaw.workspace.removal import remove_tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from coilclaw.domain.messages import Json
    from coilclaw.environments.environment import Environment, Planned
    from coilclaw.environments.registry import Hook
    from coilclaw.environments.scope import Scope

_ORPHAN_S: Final = 30.0
"""How long a session may take to end once nobody is left to hear of it."""
_ABANDONED: Final = 3
_LOOK_EVERY_S: Final = 0.1
_TOLD: Final = 500

T = TypeVar("T")


class Line(Answers):
    """The line to the server; that nobody listens any more is noticed by who reads the input."""

    def say(self, kind: str, **more: Json) -> None:
        with suppress(BrokenPipeError):
            super().say(kind, **more)


@dataclass(frozen=True, slots=True)
class CallHandling(Handling):
    """Calls the handlers of one call, until the session is to end."""

    stop: threading.Event = field(default_factory=threading.Event)

    def case(self, planned: Planned, scope: Scope) -> Case:
        if self.stop.is_set():
            return Case(id=planned.id, status="error", duration_ms=0, failure_kind="stopped")
        return Handling.case(self, planned, scope)


class Working:
    """One session, from its setup to its teardown."""

    def __init__(self, environment: Environment, request: Request, line: Line) -> None:
        self._environment = environment
        self._request = request
        self._line = line
        self._calls: queue.SimpleQueue[dict[str, Json] | None] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._handling = Handling(request, Documents(request.session))
        """Of the call that is under way; at first of the setup."""

    def run(self) -> None:
        """Do all that the session is asked for."""
        threading.Thread(target=self._listen, daemon=True).start()
        environment = self._environment
        setup, teardown = environment.setup, environment.teardown
        self._line.say(
            "loaded",
            setup_s=setup.timeout_s if setup else 0.0,
            teardown_s=teardown.timeout_s if teardown else 0.0,
        )
        if self._request.params:
            params = self._request.params
            environment.check_given(params, environment.select("", params))
        trouble = self._hook(setup, "setup") if setup else None
        self._line.say("built", error=None if trouble is None else trouble.message)
        if trouble is not None:
            return
        while (call := self._calls.get()) is not None:
            self._answer(call)
        trouble = self._hook(teardown, "teardown") if teardown else None
        self._line.say("closed", trouble=None if trouble is None else trouble.message)

    def _listen(self) -> None:
        """Take what is said on the input, until its end or that of the session."""
        try:
            while line := sys.stdin.buffer.readline(MAX_REQUEST_BYTES):
                said = json.loads(line)
                if said.get("close"):
                    break
                self._calls.put(said)
        finally:
            self._stop.set()
            self._handling.end()
            self._calls.put(None)
            sys.stdin.buffer.read()
            time.sleep(_ORPHAN_S)
            os._exit(_ABANDONED)

    def _answer(self, call: dict[str, Json]) -> None:
        try:
            self._test(call)
        except Exception as problem:  # noqa: BLE001 - one call went wrong, and not the session
            self._line.say("problem", **told(_understood(problem)))

    def _test(self, call: dict[str, Json]) -> None:
        number, path, params = call["call"], call["path"], call["params"]
        assert isinstance(path, str)
        assert isinstance(params, dict)
        environment = self._environment
        whole = {**self._request.params, **params}
        selection = environment.select(path, whole)
        # What only a setup takes would come too late.
        replace(environment, setup=None, teardown=None).check_given(params, selection)
        handling = CallHandling(
            replace(
                self._request,
                params=whole,
                scratch=self._request.scratch / f"c{number}",
            ),
            self._handling.documents,
            stop=self._stop,
        )
        handling.check(selection.cases)
        self._handling = handling
        self._line.say("selected", base=selection.base, ids=[case.id for case in selection.cases])
        self._finish(lambda: run_cases(selection.cases, handling, self._request.jobs, self._report))
        # A handler that was left behind may still write there; then it goes with the session.
        with suppress(EnvironmentFault):
            remove_tree(handling.request.scratch)
        self._line.say("called", stopped=self._stop.is_set())

    def _finish(self, run: Callable[[], None]) -> None:
        """Wait for the cases; once the session is to end, only as long as they need to notice."""
        outcome = _beside(run)
        while not wait([outcome], _LOOK_EVERY_S).done:
            if self._stop.is_set():
                wait([outcome], GRACE_S)
                return
        outcome.result()

    def _report(self, case: Case) -> None:
        self._line.say("case", case=case.bounded().json())

    def _hook(self, hook: Hook, what: str) -> Trouble | None:
        """Call the setup or the teardown, for no longer than it may take."""
        handling = Handling(self._request, self._handling.documents)
        if what == "setup":
            self._handling = handling
        outcome = _beside(lambda: handling.hook(hook, what))
        try:
            return outcome.result(timeout=hook.timeout_s + GRACE_S)
        except TimeoutError:
            handling.end()
            return Trouble(f"it took more than {hook.timeout_s:g} seconds")


def main() -> int:
    """Be the process of one session."""
    # Our own line to the server; what anybody prints must not get into it.
    line = Line(open(os.dup(1), "wb"))  # noqa: SIM115 - for good
    os.dup2(2, 1)
    sys.stdout = Printed()
    request = Request.decode(sys.stdin.buffer.readline(MAX_REQUEST_BYTES))
    hold(request.scratch)
    try:
        Working(load(request.file), request, line).run()
    except Exception as problem:  # noqa: BLE001 - whatever it is, the server is told
        line.say("problem", **told(_understood(problem)))
        return 1
    return 0


def _understood(problem: Exception) -> CoilClawError:
    """An error of ours; from elsewhere it is the environment's, such as a function of cases."""
    if isinstance(problem, CoilClawError):
        return problem
    traceback.print_exception(problem)
    what = f"{type(problem).__name__}: {problem}"[:_TOLD]
    return EnvironmentFault(f"the environment failed: {what}", rule="session.environment")


def _beside(call: Callable[[], T]) -> Future[T]:
    """Call something in a thread that nobody has to wait for."""
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as problem:  # noqa: BLE001 - raised again where it is waited for
            outcome.set_exception(problem)

    threading.Thread(target=run, daemon=True).start()
    return outcome


if __name__ == "__main__":
    code = main()
    # Threads of cases whose time was up may still be there, and are not waited for.
    os._exit(code)
