"""What a test says about a submission: checks that fail a case with what was expected."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING, Final, NoReturn

from coilclaw.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from coilclaw.environments.programs import RunResult

_KIND: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")


class CaseFailed(Exception):
    """The submission did not do what a case wants; ``kind`` says in which way."""

    def __init__(
        self, message: str, *, kind: str, expected: str | None = None, actual: str | None = None
    ) -> None:
        super().__init__(message)
        if not _KIND.fullmatch(kind):
            raise UsageError(f"{kind!r} is no kind of failure", rule="environment.kind")
        self.message = message
        self.kind = kind
        self.expected = expected
        self.actual = actual


class CaseSkipped(Exception):
    """A case cannot be run here."""


def fail(message: str, *, kind: str = "check") -> NoReturn:
    """Fail the case."""
    raise CaseFailed(message, kind=kind)


def skip(reason: str) -> NoReturn:
    """Do not count the case: it cannot be run on this machine."""
    raise CaseSkipped(reason)


def check(condition: object, message: str, *, kind: str = "check") -> None:
    """Fail the case unless the condition holds."""
    if not condition:
        raise CaseFailed(message, kind=kind)


def expect(actual: object, expected: object, what: str = "the value") -> None:
    """Fail the case unless both are equal; of texts the first difference is told."""
    if actual == expected:
        return
    texts = isinstance(actual, str) and isinstance(expected, str)
    raise CaseFailed(
        f"{what} is not what was expected",
        kind="wrong_output" if texts else "wrong_value",
        expected=_text(expected),
        actual=_text(actual),
    )


def expect_success(result: RunResult, what: str = "the program", *, exit_code: int = 0) -> None:
    """Fail the case unless the program ended by itself, in time, and with this exit code."""
    said = _last_words(result)
    if result.timed_out:
        raise CaseFailed(f"{what} did not end in time{said}", kind="timeout")
    if result.signal is not None and result.exit_code != exit_code:
        name = _signal_name(result.signal)
        raise CaseFailed(f"{what} was ended by {name}{said}", kind="crash")
    if result.exit_code != exit_code:
        raise CaseFailed(
            f"{what} ended with exit code {result.exit_code}, not {exit_code}{said}",
            kind="wrong_exit_code",
            expected=str(exit_code),
            actual=str(result.exit_code),
        )
    if result.truncated:
        raise CaseFailed(f"{what} wrote more than may be kept", kind="output_limit")


def expect_output(
    result: RunResult, stdout: str, what: str = "the program", *, exit_code: int = 0
) -> None:
    """As ``expect_success``, and what it wrote must be exactly this."""
    if result.stdout == stdout:
        expect_success(result, what, exit_code=exit_code)
        return
    # A wrong output says more than a wrong exit code, but less than a crash.
    if result.timed_out or result.signal is not None:
        expect_success(result, what, exit_code=exit_code)
    raise CaseFailed(
        f"the output of {what} is wrong{_last_words(result)}",
        kind="wrong_output",
        expected=stdout,
        actual=result.stdout,
    )


def plain_file(path: Path) -> Path:
    """Return a path at which a program has to have left a plain file.

    A link could lead a test that writes to it, or cuts it, anywhere.
    """
    if path.is_symlink() or not path.is_file():
        raise CaseFailed(f"{path.name} is no plain file", kind="missing")
    return path


def _text(value: object) -> str:
    return value if isinstance(value, str) else repr(value)


def _last_words(result: RunResult) -> str:
    text = result.stderr.strip()
    return f"; it said:\n{text[-2000:]}" if text else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
