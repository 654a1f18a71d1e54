"""``ScriptedRunner``: an agent that does what a file says, with real effects in a real sandbox.

One performance plays one turn. Files are touched by the player, a process in the sandbox of the
assignment; a command gets a process in the same sandbox for itself, and nothing of it stays.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import Part, canonical_json
from coilclaw.runners import agent_answer, contract_policy
from coilclaw.runners.runner import Deadline, Ending
from coilclaw.runners.script import attempt_of
from coilclaw.workspace import command as process

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from coilclaw.kernel import Json
    from coilclaw.runners.runner import Assignment, Means, Status
    from coilclaw.runners.script import Action, AgentScript, Turn
    from coilclaw.workspace import Enforced, LiveProcess, ProcessResult

COMMAND_TIMEOUT_S: Final = 600.0
OUTPUT_BYTES: Final = 2**20
MAX_REPLY_BYTES: Final = 64 * 2**20
ENDING_S: Final = 10.0
"""How long the end of a player is waited for, once its output has ended."""
TIMED_OUT_EXIT_CODE: Final = 124
_GIT_IDENTITY: Final = {
    "GIT_AUTHOR_NAME": "Scripted Agent",
    "GIT_AUTHOR_EMAIL": "scripted@coilclaw.invalid",
    "GIT_COMMITTER_NAME": "Scripted Agent",
    "GIT_COMMITTER_EMAIL": "scripted@coilclaw.invalid",
}


@dataclass(frozen=True, slots=True)
class ScriptedRunner:
    """Plays a script; ``turn`` says which of a task's turns an assignment is."""

    script: AgentScript
    turn: Callable[[Assignment], int] = lambda assignment: attempt_of(assignment.task_id)
    command_timeout_s: float = COMMAND_TIMEOUT_S
    name: str = "scripted"

    def perform(self, assignment: Assignment, means: Means) -> Generator[Part, None, Ending]:
        """Play one turn."""
        turns = self.script.turns(assignment.task_id)
        number = self.turn(assignment)
        if not 0 <= number < len(turns):
            why = f"the script is over: it has {len(turns)} turns for this task"
            return Ending("failed", why)
        return (yield from _Playing(assignment, means, self.command_timeout_s).play(turns[number]))


class _Over(Exception):
    """Ends a turn before its last part; it never leaves this module."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(slots=True)
class _Playing:
    """One turn while it is played."""

    assignment: Assignment
    means: Means
    command_timeout_s: float
    deadline: Deadline = field(init=False)
    contained: bool = field(init=False)
    text: str = ""
    result: Mapping[str, Json] | None = None
    enforced: list[Enforced] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.deadline = Deadline.of(self.assignment.budget)
        self.contained = contract_policy.is_contained(self.assignment, self.means)

    def play(self, turn: Turn) -> Generator[Part, None, Ending]:
        if self.means.cancel.cancelled:
            return self._ending("aborted", f"cancelled: {self.means.cancel.reason}")
        status: Status = "done"
        reason = ""
        with self._player() as player:
            said, most = 0, self.assignment.budget.parts
            try:
                for number, action in enumerate(turn):
                    part = self._part(action, number, player)
                    if part is not None:
                        if most is not None and said >= most:
                            raise _Over("exhausted", f"the budget of {most} parts is used up")
                        said += 1
                        yield part
                self._check()
            except _Over as over:
                status, reason = over.status, over.reason
        ended = player.result
        if ended is not None:
            self._note_sandbox(ended.enforced)
        return self._ending(status, reason)

    def _ending(self, status: Status, reason: str) -> Ending:
        result: Mapping[str, Json] | None = None
        if status == "done":
            task_id = self.assignment.task_id
            result = self.result
            if result is None:
                result = agent_answer.task_result(task_id, self.text or "the turn was played")
            elif "status" in result:
                result = {"task_id": task_id, **result}
            status, reason = agent_answer.verdict(result)
        return Ending(status, reason, result, self.text, enforced=tuple(self.enforced))

    def _player(self) -> LiveProcess:
        source = files(__package__).joinpath("script_player.py").read_text(encoding="utf-8")
        return process.open(
            # The interpreter itself: a virtual environment may lie where the sandbox covers it.
            (os.path.realpath(sys.executable), "-I", "-S", "-c", source),
            cwd=self.assignment.directory,
            timeout_s=self.deadline.remaining_s,
            env=self.assignment.environ,
            limit_bytes=OUTPUT_BYTES,
            sandbox=self.assignment.sandbox,
            support=self.means.support,
            cancel=self.means.cancel,
        )

    def _check(self) -> None:
        if self.means.cancel.cancelled:
            raise _Over("aborted", f"cancelled: {self.means.cancel.reason}")
        if self.deadline.passed:
            raise _Over("exhausted", self.deadline.reason)

    def _part(self, action: Action, number: int, player: LiveProcess) -> Part | None:
        self._check()
        value = action.value
        match action.kind:
            case "reasoning":
                return Part("reasoning", text=str(value))
            case "text":
                self.text = str(value)
                return Part("text", text=self.text)
            case "result":
                assert isinstance(value, dict), "the script was checked"
                self.result = value
                return None
            case "write" | "delete" | "sleep_s" | "crash":
                return self._ask_player(action, number, player)
            case "run_tests":
                return self._tests(str(value), number)
            case "commit":
                add = ("git", "add", "-A")
                sign = ("-c", "commit.gpgSign=false")
                commit = ("git", *sign, "commit", "-q", "-m", str(value))
                return self._run("git commit", {"message": value}, (add, commit), number)
            case _:
                shell = ("/bin/sh", "-c", str(value))
                return self._run("shell", {"command": value}, (shell,), number)

    def _ask_player(self, action: Action, number: int, player: LiveProcess) -> Part:
        """Let the player do it, and return the part that shows it."""
        try:
            player.stdin.write(json.dumps({action.kind: action.value}).encode() + b"\n")
            line = player.stdout.readline(MAX_REPLY_BYTES)
        except BrokenPipeError:
            line = b""
        if not line.endswith(b"\n"):
            result = player.wait(ENDING_S)
            outcome = None if result is None else result.outcome
            if outcome == "timed_out":
                raise _Over("exhausted", self.deadline.reason)
            if outcome == "cancelled":
                raise _Over("aborted", f"cancelled: {self.means.cancel.reason}")
            raise _Over("aborted", "the agent crashed: its process ended in the middle of a turn")
        reply = agent_answer.read_object(line, what="the player's reply", bound=MAX_REPLY_BYTES)
        names, code = reply.get("files"), reply.get("exit_code")
        given = {_ARGUMENT[action.kind]: action.value}
        part = _make_part(action.kind, number, given, str(reply.get("output")), code)
        return replace(part, files=tuple(map(str, names)) if isinstance(names, list) else ())

    def _tests(self, path: str, number: int) -> Part:
        run = self.means.run_tests
        output = "this task has no tests to run" if run is None else run(path)
        return _make_part("run_tests", number, {"path": path}, output, None if run else 1)

    def _run(
        self,
        tool: str,
        arguments: dict[str, Json],
        commands: tuple[tuple[str, ...], ...],
        number: int,
    ) -> Part:
        """Run commands until one fails; one that may not run is a part that says so."""
        task, output, code = self.assignment, "", 0
        for argv in commands:
            asked = contract_policy.command_request(
                task.task_id, argv, directory=str(task.directory)
            )
            refused = contract_policy.settle(
                task.shell, asked, self.means.approve, contained=self.contained
            )
            if refused:
                output, code = refused, contract_policy.REFUSED_EXIT_CODE
                break
            result = self._run_command(argv)
            output += _join_output(result)
            code = _find_exit_code(result)
            if code:
                break
        return _make_part(tool, number, arguments, output, code)

    def _run_command(self, argv: tuple[str, ...]) -> ProcessResult:
        self._check()
        result = process.run(
            argv,
            cwd=self.assignment.directory,
            timeout_s=min(self.command_timeout_s, self.deadline.remaining_s),
            env={**self.assignment.environ, **_GIT_IDENTITY},
            limit_bytes=OUTPUT_BYTES,
            sandbox=self.assignment.sandbox,
            support=self.means.support,
            cancel=self.means.cancel,
        )
        self._note_sandbox(result.enforced)
        # What was cut short by the end of everything is no complete part.
        self._check()
        return result

    def _note_sandbox(self, enforced: Enforced) -> None:
        if enforced not in self.enforced:
            self.enforced.append(enforced)


_ARGUMENT: Final = {"write": "files", "delete": "paths", "sleep_s": "seconds", "crash": "crash"}


def _make_part(
    tool: str, number: int, arguments: dict[str, Json], output: str, exit_code: Json
) -> Part:
    return Part(
        "tool",
        tool=tool,
        call_id=f"call-{number}",
        input=canonical_json.render_json(arguments),
        output=output,
        exit_code=exit_code if isinstance(exit_code, int) else None,
    )


def _join_output(result: ProcessResult) -> str:
    text, errors = result.stdout.text(), result.stderr.text()
    if not errors:
        return text
    gap = "" if not text or text.endswith("\n") else "\n"
    return f"{text}{gap}[stderr]\n{errors}"


def _find_exit_code(result: ProcessResult) -> int:
    if result.outcome == "timed_out":
        return TIMED_OUT_EXIT_CODE
    if result.signal is not None:
        return 128 + result.signal
    return 1 if result.exit_code is None else result.exit_code
