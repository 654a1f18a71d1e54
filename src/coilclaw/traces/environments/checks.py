"""What a test says about a submission: checks that fail a case with what was expected."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING, Final, NoReturn

from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from coilclaw.traces.environments.programs import RunResult

WIDTH: Final = 120
"""Characters shown of each side of a difference."""
_BEFORE: Final = 20
_KIND: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")


class CaseFailed(Exception):
    """The submission did not do what a case wants; ``kind`` says in which way."""

    def __init__(
        self, message: str, *, kind: str, expected: str | None = None, actual: str | None = None
    ) -> None:
        super().__init__(message)
        if not _KIND.fullmatch(kind):
            raise UsageError(f"{kind!r} is not a kind of failure", rule="environment.kind")
        self.message = message
        self.kind = kind
        self.expected = expected
        self.actual = actual
        both = None if expected is None or actual is None else (expected, actual)
        self.difference = both and first_difference(*both)


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
    """Fail the case unless both are equal; show the first difference of texts."""
    if actual == expected:
        return
    texts = isinstance(actual, str) and isinstance(expected, str)
    raise CaseFailed(
        f"{what} is not what was expected",
        kind="wrong_output" if texts else "wrong_value",
        expected=expected if isinstance(expected, str) else repr(expected),
        actual=actual if isinstance(actual, str) else repr(actual),
    )


def expect_success(result: RunResult, what: str = "the program", *, exit_code: int = 0) -> None:
    """Fail the case unless the program ended by itself, in time, and with this exit code."""
    said = _last_words(result)
    if result.timed_out:
        raise CaseFailed(f"{what} did not end in time{said}", kind="timeout")
    if result.signal is not None and result.exit_code != exit_code:
        known = result.signal in {*signal.Signals}
        name = signal.Signals(result.signal).name if known else f"signal {result.signal}"
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
    """Fail the case unless the program succeeded and wrote exactly this."""
    if result.stdout == stdout:
        expect_success(result, what, exit_code=exit_code)
        return
    # A wrong output says more than a wrong exit code, but less than a crash.
    if result.timed_out or result.signal is not None:
        expect_success(result, what, exit_code=exit_code)
    message = f"the output of {what} is wrong{_last_words(result)}"
    raise CaseFailed(message, kind="wrong_output", expected=stdout, actual=result.stdout)


def plain_file(path: Path) -> Path:
    """Return a path at which a program has to have left a plain file.

    A link could lead a test that writes to it, or cuts it, anywhere.
    """
    if path.is_symlink() or not path.is_file():
        raise CaseFailed(f"{path.name} is not a plain file", kind="missing")
    return path


def _last_words(result: RunResult) -> str:
    text = result.stderr.strip()
    return f"; it said:\n{text[-2000:]}" if text else ""


def first_difference(expected: str, actual: str) -> str | None:
    """Describe where two texts first differ, with both sides; ``None`` if they are equal."""
    if expected == actual:
        return None
    old, new = expected.split("\n"), actual.split("\n")
    for number, (one, other) in enumerate(zip(old, new, strict=False), 1):
        if one != other:
            at = next(
                (index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
                min(len(one), len(other)),
            )
            return (
                f"line {number}, column {at + 1}:\n"
                f"expected {_around(one, at)}\n"
                f"actual   {_around(other, at)}"
            )
    if len(old) < len(new):
        more, first = _count_lines(len(new) - len(old)), _around(new[len(old)], 0)
        return f"{more} more than expected from line {len(old) + 1}: {first}"
    missing, first = _count_lines(len(old) - len(new)), _around(old[len(new)], 0)
    return f"{missing} missing from line {len(new) + 1}: {first}"


def _around(line: str, at: int) -> str:
    """Return a line as a literal, cut so that one column of it is visible."""
    start = max(0, at - _BEFORE) if len(line) > WIDTH else 0
    piece = line[start : start + WIDTH]
    # A literal of control characters is up to ten times as long.
    text = repr(piece)[: 2 * WIDTH]
    return f"{'…' if start else ''}{text}{'…' if start + WIDTH < len(line) else ''}"


def _count_lines(count: int) -> str:
    return "1 line is" if count == 1 else f"{count} lines are"
