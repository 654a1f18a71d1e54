"""The terminal as a channel: one message, or a conversation until the user leaves."""

from __future__ import annotations

import signal
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final, TextIO

from coilclaw.agent.channels.prompts import Screen
from coilclaw.agent.channels.visible import SafeText
from coilclaw.agent.handle import check_message
from coilclaw.kernel import CoilClawError, UsageError, interrupt, signal_scope

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from coilclaw.agent.channels.commands import ChatCommands
    from coilclaw.agent.channels.lines import MessageLines
    from coilclaw.agent.handle import RuntimeHandle, TurnOutcome

PROMPT: Final = "> "
CONTINUED: Final = "... "
MAX_MESSAGE: Final = 2**20
"""Characters of one message, with all of its continued lines."""

_CANCELLED: Final = "Turn cancelled; the conversation continues."
_HINT: Final = "To leave, type /exit or press Ctrl-D."


class AnswerWriter:
    """Writes one answer: without control characters on a terminal, unchanged elsewhere."""

    __slots__ = ("_drafted", "_mid_line", "_safe", "_screen")

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._safe = SafeText()
        self._drafted = ""
        self._mid_line = False

    def draft(self, piece: str) -> None:
        """Show a piece of the answer as it arrives."""
        self._drafted += piece
        self._show(self._safe.feed(piece))

    def finish(self, text: str) -> None:
        """Show the rest of the answer, and end its line."""
        if not self._screen.terminal:
            self._screen.write(text if text.endswith("\n") else text + "\n")
            return
        if not self._drafted.rstrip().endswith(text.rstrip()):
            self.leave()
            self.draft(text)
        self.leave()

    def leave(self) -> None:
        """End the current line."""
        self._show(self._safe.finish())
        if self._mid_line:
            self._show("\n")

    def _show(self, text: str) -> None:
        if text:
            self._screen.write(text)
            self._mid_line = not text.endswith("\n")


def run_one_turn(
    handle: RuntimeHandle,
    message: str,
    *,
    out: TextIO,
    environ: Mapping[str, str],
    conversation_id: str | None = None,
) -> TurnOutcome:
    """Run one turn and show its answer; on a terminal, as it arrives."""
    return _turn(handle, message, conversation_id, Screen.of(out, environ))


def _turn(
    handle: RuntimeHandle, message: str, conversation_id: str | None, screen: Screen
) -> TurnOutcome:
    answer = AnswerWriter(screen)
    draft = answer.draft if screen.terminal else None
    try:
        outcome = handle.turn(message, conversation_id=conversation_id, draft=draft)
    except BaseException:
        answer.leave()
        raise
    answer.finish(outcome.text)
    return outcome


class TerminalChannel:
    """A conversation at the terminal, or with a program that writes to standard input."""

    name = "cli"

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        source: TextIO | None = None,
        out: TextIO | None = None,
        err: TextIO | None = None,
        history: Path | None = None,
        conversation_id: str | None = None,
    ) -> None:
        self._source = sys.stdin if source is None else source
        self._out = Screen.of(sys.stdout if out is None else out, environ)
        self._err = Screen.of(sys.stderr if err is None else err, environ)
        self._history = history
        self._busy = False
        self._hinted = False
        self._broken = False
        self._left = False
        self._note = ""
        self._ended = False
        self.conversation_id = conversation_id
        self.problem: CoilClawError | None = None
        """The last error of a message or a command."""

    @property
    def supports_draft_updates(self) -> bool:
        return self._out.terminal

    @property
    def _interactive(self) -> bool:
        # Line editing works only on the program's own streams.
        own = self._source is sys.stdin and self._out.stream is sys.stdout
        return own and self._out.terminal and self._source.isatty()

    def send(self, conversation_id: str, message: str) -> None:
        """Print a message, with its conversation if that is another one."""
        if conversation_id != self.conversation_id:
            self._out.line(f"[{conversation_id}]", "dim")
        AnswerWriter(self._out).finish(message)

    def start(self, runtime_handle: RuntimeHandle) -> None:
        """Process messages and commands until the end of input or ``/exit``."""
        from coilclaw.agent.channels.commands import ChatCommands
        from coilclaw.agent.channels.lines import EditedLines, LineHistory, PipedLines

        if self.conversation_id is None:
            self.conversation_id = runtime_handle.new_conversation()
        commands = ChatCommands(runtime_handle, self.conversation_id)
        editing: AbstractContextManager[None] = nullcontext()
        lines: MessageLines = PipedLines(self._source)
        if self._interactive:
            history = LineHistory(self._history) if self._history else None
            edited = EditedLines(history, marks_paste=self._out.smart)
            editing, lines = edited.editing(commands.complete), edited
        endings = (signal.SIGTERM, signal.SIGHUP)
        with signal_scope(self._end, *endings, keep_ignored=True), editing:
            self._greet()
            self._converse(runtime_handle, commands, lines)

    def _end(self, number: signal.Signals) -> None:
        """Interrupt the turn as Ctrl-C does, and end the conversation."""
        self._ended = True
        interrupt(number)

    def _greet(self) -> None:
        self._err.line(f"Conversation {self.conversation_id}", "dim")
        self._err.line(
            f"Resume it with: coilclaw agent --conversation {self.conversation_id}", "dim"
        )
        if self._interactive:
            self._err.line("/help lists the commands, Ctrl-D leaves.", "dim")

    def _converse(self, handle: RuntimeHandle, commands: ChatCommands, lines: MessageLines) -> None:
        while not self._left:
            # A message about an interruption can be interrupted as well, so the handlers only
            # store it, and the next round prints it.
            try:
                broken, self._broken = self._broken, False
                note, self._note = self._note, ""
                if broken:
                    self._err.write("\n")
                if note:
                    self._err.line(note, "yellow")
                self._round(handle, commands, lines)
            except KeyboardInterrupt:
                if self._ended or not self._interactive:
                    raise
                self._note = _CANCELLED if self._busy else "" if self._hinted else _HINT
                self._hinted = True
                self._broken = True
            except CoilClawError as problem:
                self.problem = problem
                said = f"coilclaw: {' '.join(problem.message.split())} [{problem.rule}]"
                self._note = said + (f"\n  hint: {problem.hint}" if problem.hint else "")

    def _round(self, handle: RuntimeHandle, commands: ChatCommands, lines: MessageLines) -> None:
        self._busy = False
        message = self._message(lines)
        self._hinted = False
        if message is None:
            self._left = True
            if self._interactive:
                self._out.line()
        elif message.rstrip() == "/exit":
            self._left = True
        elif message.startswith("/"):
            for line in commands.perform(message):
                self._out.line(line)
        elif message.strip():
            self._busy = True
            _turn(handle, message, self.conversation_id, self._out)

    def _message(self, lines: MessageLines) -> str | None:
        """Return the next message with its continued lines; ``None`` at the end of input."""
        parts: list[str] = []
        size = 0
        prompt = PROMPT
        # These bytes tell the line editor that the style has no width.
        style = "\x01\x1b[1m\x02{}\x01\x1b[0m\x02" if self._out.colour else "{}"
        while (line := lines.read(style.format(prompt))) is not None:
            goes_on = (len(line) - len(line.rstrip("\\"))) % 2 == 1
            size += len(line)
            if size <= MAX_MESSAGE:
                parts.append(line[:-1] if goes_on else line)
            if not goes_on:
                break
            prompt = CONTINUED
        if size > MAX_MESSAGE:
            raise UsageError(
                f"the message is longer than {MAX_MESSAGE} characters", rule="message.large"
            )
        check_message("\n".join(parts))
        return "\n".join(parts) if parts else None
