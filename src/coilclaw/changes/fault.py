"""How the readers of text formats word what they cannot read."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from coilclaw.errors import AnswerError, PathRefused, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.errors import CoilClawError

_FINAL: Final = frozenset({"answer.bounds", "git.long", "envelope.long", "blocks.long"})
"""What is too much is not read any further."""


def malformed(
    line: int, rule: str, message: str, *, path: str | None = None, hint: str | None = None
) -> AnswerError:
    """Return the error for a line of the answer, which the message names too."""
    return AnswerError(f"line {line}: {message}", rule=rule, line=line, path=path, hint=hint)


@contextmanager
def path_at(line: int) -> Iterator[None]:
    """Give the line of the answer to the refusal of a path that is checked within."""
    try:
        yield
    except PathRefused as problem:
        problem.line = line
        raise


@contextmanager
def collect(failures: list[CoilClawError]) -> Iterator[None]:
    """Keep what is wrong with one part of an answer, so that the other parts are read too."""
    try:
        yield
    except (AnswerError, PathRefused) as problem:
        if problem.rule in _FINAL:
            raise
        failures.append(problem)


def inexpressible(message: str) -> UsageError:
    """Return the error for an operation that a format has no words for."""
    return UsageError(message, rule="render.inexpressible")
