"""How the readers of text formats word what they cannot read."""

from __future__ import annotations

from coilclaw.errors import AnswerError, UsageError


def malformed(
    line: int, rule: str, message: str, *, path: str | None = None, hint: str | None = None
) -> AnswerError:
    """Return the error for a line of the answer, which the message names too."""
    return AnswerError(f"line {line}: {message}", rule=rule, line=line, path=path, hint=hint)


def inexpressible(message: str) -> UsageError:
    """Return the error for an operation that a format has no words for."""
    return UsageError(message, rule="render.inexpressible")
