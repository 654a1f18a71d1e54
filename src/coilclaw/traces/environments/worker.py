"""The process that loads an environment and runs its handlers: ``python -m …worker [session]``.

It is told what to do on its input, and answers with one JSON object in each line. For a judge it
does one thing: ``schema``, ``selected``, ``built``, ``case``…, ``trouble``, ``done``, or
``problem`` when it cannot continue.

For a session it builds once and tests many times. The first line on its input is the request, with
the parameters of the session; each further line is a call, ``{"call": N, "path": …, "params":
{…}}``, or the end, ``{"close": true}``. The answers are ``loaded``, ``built``; for a call
``selected``, ``case``… and ``called``, or ``problem``; at last ``closed``. When its input ends, so
does the session.
"""

from __future__ import annotations

import io
import json
import os
import queue
import sys
import threading
import time
import traceback
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO, Final, TypeVar

from coilclaw.kernel import CoilClawError, EnvironmentFault, Json, UsageError
from coilclaw.traces.environments import programs
from coilclaw.traces.environments.case_run import (
    GRACE_S,
    MAX_REQUEST_BYTES,
    Handling,
    Request,
    run_cases,
)
from coilclaw.traces.environments.containment import find_tools
from coilclaw.traces.environments.declarations import Documents
from coilclaw.traces.environments.environment import load_environment
from coilclaw.traces.environments.results import Case
from coilclaw.traces.environments.session_process import hold
from coilclaw.workspace import remove_tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from coilclaw.traces.environments.containment import Tools
    from coilclaw.traces.environments.environment import Environment, EnvironmentHook, Selection

_ENDING_S: Final = 3.0
_ORPHAN_S: Final = 30.0
"""How long a session may take to end once its server is gone."""
_ABANDONED: Final = 3
_LOOK_EVERY_S: Final = 0.1
_TOLD: Final = 500

T = TypeVar("T")


class Answers:
    """The line to the parent process, which several threads may use."""

    def __init__(self, file: BinaryIO, *, session: bool) -> None:
        self._file = file
        self._lock = threading.Lock()
        # The thread that reads the input of a session notices that its server is gone.
        self._ignored = (BrokenPipeError,) if session else ()

    def say(self, kind: str, **more: Json) -> None:
        line = json.dumps({"kind": kind, **more}).encode() + b"\n"
        with suppress(*self._ignored), self._lock:
            self._file.write(line)
            self._file.flush()

    def select(self, selection: Selection) -> None:
        self.say("selected", base=selection.base, ids=[case.id for case in selection.cases])

    def report(self, case: Case) -> None:
        self.say("case", case=case.limit_texts().json())

    def refuse(self, problem: CoilClawError) -> None:
        self.say(
            "problem",
            rule=problem.rule,
            message=problem.message,
            hint=problem.hint,
            where=problem.where,
            usage=isinstance(problem, UsageError),
        )


class _Printed(io.TextIOBase):
    """What handlers print: it goes to the log of the case that is running."""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        scope = programs.talking()
        if scope is not None:
            scope.say(text)
        elif sys.__stderr__:
            sys.__stderr__.write(text)
        return len(text)


def main(arguments: list[str]) -> int:
    """Do what is asked, once, or be the process of one session."""
    # Our own line to the parent; what anything prints must not get into it.
    line = open(os.dup(1), "wb")  # noqa: SIM115 - for good
    os.dup2(2, 1)
    sys.stdout = _Printed()
    request = Request.decode(sys.stdin.buffer.readline(MAX_REQUEST_BYTES))
    tools = find_tools(os.environ.get("PATH", ""))
    if arguments != ["session"]:
        return _answer_judge(request, tools, Answers(line, session=False))
    hold(request.scratch)
    answers = Answers(line, session=True)
    try:
        _Session(load_environment(request.file), request, tools, answers).run()
    except Exception as problem:  # noqa: BLE001 - every failure is reported to the server
        answers.refuse(_as_fault(problem))
        return 1
    return 0


def _answer_judge(request: Request, tools: Tools, answers: Answers) -> int:
    try:
        environment = load_environment(request.file)
        if request.task == "schema":
            answers.say("schema", schema=environment.schema())
        else:
            _test(environment, request, tools, answers)
    except CoilClawError as problem:
        answers.refuse(problem)
        return 1
    except BrokenPipeError:
        # The judge is gone. The thread that is ending all programs now must not be cut short.
        time.sleep(2 * _ENDING_S)
        return _ABANDONED
    answers.say("done")
    return 0


def _test(environment: Environment, request: Request, tools: Tools, answers: Answers) -> None:
    selection = environment.select(request.path, request.params)
    environment.check_given(request.params, selection)
    handling = Handling(request, Documents(request.session), tools)
    handling.check(selection.cases)
    threading.Thread(target=_end_with_judge, args=(handling,), daemon=True).start()
    answers.select(selection)
    if request.task == "select":
        return
    setup, teardown = environment.setup, environment.teardown
    if not request.built:
        error = handling.hook(setup, "setup") if setup else None
        # With more time, or a tool that was missing, what failed may be built tomorrow.
        answers.say("built", error=error, keep=error is None and teardown is None)
        if error is not None:
            for one in selection.cases:
                if one.skipped is not None:
                    answers.report(
                        Case(id=one.id, status="skipped", duration_ms=0, log=one.skipped)
                    )
            return
    run_cases(selection.cases, handling, request.jobs, answers.report)
    if teardown is not None and (trouble := handling.hook(teardown, "teardown")) is not None:
        answers.say("trouble", message=f"the teardown failed: {trouble}")


def _end_with_judge(handling: Handling) -> None:
    """Wait until the judge closes our input, which it holds open while it listens."""
    sys.stdin.buffer.read()
    handling.end()
    # Threads that wait for programs notice by themselves, and see to their end.
    time.sleep(_ENDING_S)
    os._exit(_ABANDONED)


class _Session:
    """One session, from its setup to its teardown."""

    def __init__(
        self, environment: Environment, request: Request, tools: Tools, answers: Answers
    ) -> None:
        self._environment = environment
        self._request = request
        self._tools = tools
        self._answers = answers
        self._calls: queue.SimpleQueue[dict[str, Json] | None] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._documents = Documents(request.session)
        self._handling = Handling(request, self._documents, tools)
        """Of the call that is under way; at first of the setup."""

    def run(self) -> None:
        """Do all that the session is asked for."""
        threading.Thread(target=self._listen, daemon=True).start()
        environment = self._environment
        setup, teardown = environment.setup, environment.teardown
        self._answers.say(
            "loaded",
            setup_s=setup.timeout_s if setup else 0.0,
            teardown_s=teardown.timeout_s if teardown else 0.0,
        )
        if params := self._request.params:
            environment.check_given(params, environment.select("", params))
        error = self._hook(setup, "setup", self._handling)
        self._answers.say("built", error=error)
        if error is not None:
            return
        while (call := self._calls.get()) is not None:
            try:
                self._test(call)
            except Exception as problem:  # noqa: BLE001 - one call went wrong, and not the session
                self._answers.refuse(_as_fault(problem))
        trouble = self._hook(
            teardown, "teardown", Handling(self._request, self._documents, self._tools)
        )
        self._answers.say("closed", trouble=trouble)

    def _listen(self) -> None:
        """Read calls from the input until it or the session ends."""
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

    def _test(self, call: dict[str, Json]) -> None:
        path, params = call["path"], call["params"]
        assert isinstance(path, str)
        assert isinstance(params, dict)
        environment = self._environment
        whole = {**self._request.params, **params}
        selection = environment.select(path, whole)
        # What only a setup takes would come too late.
        replace(environment, setup=None, teardown=None).check_given(params, selection)
        scratch = self._request.scratch / f"c{call['call']}"
        request = replace(self._request, params=whole, scratch=scratch)
        handling = Handling(request, self._documents, self._tools, self._stop)
        handling.check(selection.cases)
        self._handling = handling
        self._answers.select(selection)
        outcome = _run_beside(
            lambda: run_cases(selection.cases, handling, request.jobs, self._answers.report)
        )
        while not wait([outcome], _LOOK_EVERY_S).done:
            if self._stop.is_set():
                # The session is to end: the cases get only as long as they need to notice.
                wait([outcome], GRACE_S)
                break
        else:
            outcome.result()
        # A handler that was left behind may still write there; then it goes with the session.
        with suppress(EnvironmentFault):
            remove_tree(scratch)
        self._answers.say("called", stopped=self._stop.is_set())

    def _hook(self, hook: EnvironmentHook | None, what: str, handling: Handling) -> str | None:
        """Call the setup or the teardown, for no longer than it may take."""
        if hook is None:
            return None
        outcome = _run_beside(lambda: handling.hook(hook, what))
        try:
            return outcome.result(timeout=hook.timeout_s + GRACE_S)
        except TimeoutError:
            handling.end()
            return f"it took more than {hook.timeout_s:g} seconds"


def _as_fault(problem: Exception) -> CoilClawError:
    """Return a CoilClaw error; any other exception is blamed on the environment."""
    if isinstance(problem, CoilClawError):
        return problem
    traceback.print_exception(problem)
    what = f"{type(problem).__name__}: {problem}"[:_TOLD]
    return EnvironmentFault(f"the environment failed: {what}", rule="session.environment")


def _run_beside(call: Callable[[], T]) -> Future[T]:
    """Call a function in a thread that does not keep the process from ending."""
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as problem:  # noqa: BLE001 - raised again where it is waited for
            outcome.set_exception(problem)

    threading.Thread(target=run, daemon=True).start()
    return outcome


if __name__ == "__main__":
    code = main(sys.argv[1:])
    # Threads of cases whose time was up may still be there, and are not waited for.
    os._exit(code)
