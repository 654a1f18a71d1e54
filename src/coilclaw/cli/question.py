"""Ask questions at a terminal, each of which a flag can answer as well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TextIO

from coilclaw.kernel import Stopped, UsageError

if TYPE_CHECKING:
    from coilclaw.cli.command import Console
    from coilclaw.kernel import Secret
    from coilclaw.workspace import Cancellation

MAX_ANSWER: Final = 4096
_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Questions:
    """Asks the user at the terminal, if there is one.

    A ``default`` also applies without a terminal; a ``suggestion`` is only offered.
    """

    console: Console
    source: TextIO
    cancel: Cancellation | None = None
    """Ends a question that waits for its answer, if signals are handled."""

    @property
    def attended(self) -> bool:
        """Whether the input is a terminal."""
        return self.source.isatty()

    def text(
        self, question: str, *, flag: str, default: str | None = None, suggestion: str | None = None
    ) -> str:
        """Ask for a line."""
        if not self.attended:
            return self._use_default(question, flag, default)
        offered = default if default is not None else suggestion
        for _ in range(_TRIES):
            answer = self._read_line(f"{question}{f' [{offered}]' if offered else ''} ")
            if answer or offered is not None:
                return answer or offered or ""
        raise _unanswered_error(flag)

    def choose(
        self,
        question: str,
        options: tuple[str, ...],
        *,
        flag: str,
        default: str | None = None,
        suggestion: str | None = None,
    ) -> str:
        """Ask for one of several, by number or by name."""
        if not self.attended:
            return self._use_default(question, flag, default)
        offered = suggestion or default or options[0]
        self.console.note(question)
        for number, option in enumerate(options, start=1):
            self.console.note(f"  {number}  {option}")
        for _ in range(_TRIES):
            answer = self._read_line(f"1-{len(options)} [{offered}] ") or offered
            if answer in options:
                return answer
            if answer.isascii() and answer.isdigit() and 1 <= int(answer) <= len(options):
                return options[int(answer) - 1]
            self.console.note(f"one of: {', '.join(options)}", "yellow")
        raise _unanswered_error(flag)

    def confirm(self, question: str, *, flag: str, default: bool) -> bool:
        """Ask for a yes or a no; without a terminal, raise instead of assuming a yes."""
        if not self.attended:
            self._use_default(question, flag, None)
        for _ in range(_TRIES):
            answer = self._read_line(f"{question} {'[Y/n]' if default else '[y/N]'} ").lower()
            if answer in {"", "y", "yes", "n", "no"}:
                return default if not answer else answer.startswith("y")
        raise _unanswered_error(flag)

    def secret(self, question: str) -> Secret:
        """Ask for a value that is not shown while it is typed."""
        import warnings
        from getpass import GetPassWarning, getpass

        from coilclaw.kernel import Secret

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", GetPassWarning)
                typed = getpass(f"{question} ").strip()
        except GetPassWarning as problem:
            raise UsageError(
                "this terminal would show the key while it is typed",
                rule="onboard.echo",
                hint="put the key into a file and use --api-key-file",
            ) from problem
        except EOFError as problem:
            raise Stopped("nothing was written", rule="onboard.declined") from problem
        if not typed:
            raise UsageError("no key was typed", rule="onboard.key")
        return Secret(typed[:MAX_ANSWER])

    def _read_line(self, prompt: str) -> str:
        self.console.err.write(prompt)
        self.console.err.flush()
        stopped = self.cancel and not self.cancel.wait_for_input(self.source.fileno())
        line = "" if stopped else self.source.readline(MAX_ANSWER)
        if not line:
            self.console.note("")  # The next message starts on a line of its own.
            raise Stopped("nothing was written", rule="onboard.declined")
        return line.strip()

    def _use_default(self, question: str, flag: str, default: str | None) -> str:
        if default is not None:
            return default
        raise UsageError(
            f"cannot ask without a terminal, and {flag} is not given: {question}",
            rule="onboard.unanswered",
            hint=f"answer with {flag}",
        )


def _unanswered_error(flag: str) -> UsageError:
    return UsageError(
        "the question was not answered", rule="onboard.unanswered", hint=f"answer with {flag}"
    )
