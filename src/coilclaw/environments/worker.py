"""The process that loads an environment and runs its handlers: ``python -m …worker``.

It is told what to do on its input, and answers with one JSON object in each line: ``schema``,
``selected``, ``built``, ``case``, ``trouble``, ``done``, or ``problem`` when it cannot go on.
"""

from __future__ import annotations

import io
import json
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, BinaryIO, Final

from coilclaw.environments import scope as scopes
from coilclaw.environments.handling import Handling
from coilclaw.environments.loading import load
from coilclaw.environments.parameters import Documents
from coilclaw.environments.results import Case
from coilclaw.environments.scheduling import run_cases
from coilclaw.environments.wire import MAX_REQUEST_BYTES, Request
from coilclaw.errors import CoilClawError, UsageError

if TYPE_CHECKING:
    from coilclaw.domain.messages import Json
    from coilclaw.environments.environment import Environment, Selection


_ENDING_S: Final = 3.0
_ABANDONED: Final = 3


class Answers:
    """The line to the judge, which several threads may use."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._lock = threading.Lock()

    def say(self, kind: str, **more: Json) -> None:
        line = json.dumps({"kind": kind, **more}).encode() + b"\n"
        with self._lock:
            self._file.write(line)
            self._file.flush()


class Printed(io.TextIOBase):
    """What handlers print: it goes to the log of the case that is running."""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        scope = scopes.talking()
        if scope is None:
            sys.__stderr__.write(text) if sys.__stderr__ else None
        else:
            scope.say(text)
        return len(text)


def main() -> int:
    """Do what is asked, once."""
    # Our own line to the judge; what anybody prints must not get into it.
    answers = Answers(open(os.dup(1), "wb"))  # noqa: SIM115 - for good
    os.dup2(2, 1)
    sys.stdout = Printed()
    request = Request.decode(sys.stdin.buffer.readline(MAX_REQUEST_BYTES))
    try:
        environment = load(request.file)
        if request.task == "schema":
            answers.say("schema", schema=environment.schema())
        else:
            _test(environment, request, answers)
    except CoilClawError as problem:
        answers.say("problem", **told(problem))
        return 1
    except BrokenPipeError:
        # The judge is gone. Who is ending all programs now must not be cut short.
        time.sleep(2 * _ENDING_S)
        return _ABANDONED
    answers.say("done")
    return 0


def told(problem: CoilClawError) -> dict[str, Json]:
    """An error as it is said to the judge."""
    return {
        "rule": problem.rule,
        "message": problem.message,
        "hint": problem.hint,
        "where": problem.where,
        "usage": isinstance(problem, UsageError),
    }


def _test(environment: Environment, request: Request, answers: Answers) -> None:
    selection = environment.select(request.path, request.params)
    environment.check_given(request.params, selection)
    handling = Handling(request, Documents(request.session))
    handling.check(selection.cases)
    threading.Thread(target=_end_with_judge, args=(handling,), daemon=True).start()
    answers.say("selected", base=selection.base, ids=[case.id for case in selection.cases])
    if request.task == "select":
        return
    if not request.built and not _built(environment, handling, answers):
        for one in selection.cases:
            if one.skipped is not None:
                case = Case(id=one.id, status="skipped", duration_ms=0, log=one.skipped)
                answers.say("case", case=case.bounded().json())
        return
    _run(selection, handling, request.jobs, answers)
    if environment.teardown is not None:
        trouble = handling.hook(environment.teardown, "teardown")
        if trouble is not None:
            answers.say("trouble", message=f"the teardown failed: {trouble.message}")


def _end_with_judge(handling: Handling) -> None:
    """Wait until the judge is gone: it holds our input open for as long as it wants to hear."""
    sys.stdin.buffer.read()
    handling.end()
    # Those who wait for programs notice by themselves, and see to their end.
    time.sleep(_ENDING_S)
    os._exit(_ABANDONED)


def _built(environment: Environment, handling: Handling, answers: Answers) -> bool:
    """Build the submission, and say whether that can be kept for the next time."""
    if environment.setup is not None:
        trouble = handling.hook(environment.setup, "setup")
        if trouble is not None:
            # With more time, or a tool that was missing, the same files may be built tomorrow.
            answers.say("built", error=trouble.message, keep=False)
            return False
    answers.say("built", error=None, keep=environment.teardown is None)
    return True


def _run(selection: Selection, handling: Handling, jobs: int, answers: Answers) -> None:
    def report(case: Case) -> None:
        answers.say("case", case=case.bounded().json())

    run_cases(selection.cases, handling, jobs, report)


if __name__ == "__main__":
    code = main()
    # Threads of cases whose time was up may still be there, and are not waited for.
    os._exit(code)
