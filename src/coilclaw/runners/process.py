"""``ProcessRunner``: any program as an agent: the contract on its input, a result on its output.

It is started in the worktree, inside the sandbox of the assignment. Its output is one agent task
result in JSON and nothing else; what it has to say besides goes to its error output.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import AnswerError, Part
from coilclaw.runners import agent_answer
from coilclaw.runners.runner import Deadline, Ending
from coilclaw.workspace import command

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from coilclaw.kernel import Json
    from coilclaw.runners.runner import Assignment, Means
    from coilclaw.workspace import ProcessResult

MAX_STDERR_BYTES: Final = 2**20
MAX_LINE_BYTES: Final = 64 * 2**10
MAX_LINES: Final = 2_000
"""Lines of error output that are told while the program runs; all of it is kept."""
_SIGNALLED: Final = 128
ERROR_OUTPUT: Final = "stderr"
"""The ``item_type`` of the part that holds what the program wrote besides its result."""


@dataclass(frozen=True, slots=True)
class ProcessRunner:
    """Starts one program for each assignment."""

    argv: tuple[str, ...]
    base: Path | None = None
    """What a program that is named by a relative path is relative to; else it is the worktree."""
    name: str = "process"

    def perform(self, assignment: Assignment, means: Means) -> Generator[Part, None, Ending]:
        """Run the program to its end."""
        deadline = Deadline.of(assignment.budget)
        argv = self.command_line()
        # The contract, or what stands for one outside of orchestrated work.
        contract: dict[str, Json] = dict(assignment.contract) or {
            "task_id": assignment.task_id,
            "inputs": {"spec": assignment.instruction, "artifacts": []},
        }
        heard = OutputLines(means.on_output)
        result = command.run(
            argv,
            cwd=assignment.directory,
            timeout_s=deadline.remaining_s,
            env=assignment.environ,
            stdin=json.dumps(contract, ensure_ascii=True).encode("ascii") + b"\n",
            # Half of what is kept is the head: only a stream that was kept whole is read.
            limit_bytes=agent_answer.MAX_ANSWER_BYTES,
            sandbox=assignment.sandbox.showing(*argv),
            support=means.support,
            cancel=means.cancel,
            observe_errors=heard.take,
        )
        heard.finish()
        said = result.stderr.text()
        if len(said) > MAX_STDERR_BYTES:
            half = MAX_STDERR_BYTES // 2
            said = f"{said[:half]}\n[… cut …]\n{said[-half:]}"
        if said:
            yield Part("text", text=said, item_type=ERROR_OUTPUT)
        ending = replace(_judge_result(result, deadline, means), enforced=(result.enforced,))
        if ending.result is not None and ending.text:
            yield Part("text", text=ending.text)
        return ending

    def command_line(self) -> tuple[str, ...]:
        """Return what is started."""
        program, *rest = self.argv
        if self.base is not None and "/" in program:
            program = os.path.join(self.base, program)
        return (program, *rest)


@dataclass(slots=True)
class OutputLines:
    """Cuts output into lines as it comes; what is longer than a line may be is told in part."""

    tell: Callable[[str], None]
    _rest: bytes = b""
    _told: int = 0

    def take(self, data: bytes) -> None:
        """Tell each line that is complete; after ``MAX_LINES`` nothing more is told."""
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:MAX_LINE_BYTES]
        for line in lines:
            if self._told < MAX_LINES:
                self._told += 1
                self.tell(line[:MAX_LINE_BYTES].decode("utf-8", "replace"))

    def finish(self) -> None:
        """Tell a last line that has no end."""
        if self._rest:
            self.take(b"\n")


def _judge_result(result: ProcessResult, deadline: Deadline, means: Means) -> Ending:
    code, signal = result.exit_code, result.signal
    if result.enforced.kind == "bubblewrap" and code is not None and code > _SIGNALLED:
        signal = code - _SIGNALLED  # bubblewrap tells of a signal as a shell does
    if result.outcome == "cancelled":
        return Ending("aborted", f"cancelled: {means.cancel.reason}")
    if result.outcome == "timed_out":
        return Ending("exhausted", deadline.reason)
    if signal is not None:
        return Ending("aborted", f"the program was ended by signal {signal}")
    if code != 0:
        return Ending("failed", f"the program ended with exit code {code}")
    if result.stdout.dropped:
        most = agent_answer.MAX_ANSWER_BYTES
        return Ending("failed", f"the program wrote more than {most:,} bytes")
    try:
        answer = agent_answer.read_object(result.stdout.data, what="the program's output")
    except AnswerError as problem:
        return Ending("failed", f"{problem.message} [{problem.rule}]")
    return Ending(*agent_answer.verdict(answer), answer, str(answer.get("summary") or ""))
