"""The check behind every renderer: what it wrote is read back and must be what was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coilclaw.changes.fault import inexpressible
from coilclaw.errors import AnswerError, PathRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from coilclaw.changes.operations import Operation
    from coilclaw.errors import UsageError


def checked(
    noun: str,
    text: str,
    wanted: tuple[Operation, ...],
    parse: Callable[[str], tuple[Operation, ...]],
) -> str:
    """Return the text if it reads back as the operations, else say which one has no spelling."""
    if not wanted:
        raise inexpressible(f"{noun} cannot be empty")
    try:
        found = parse(text)
    except (AnswerError, PathRefused) as problem:
        raise inexpressible(f"{noun} cannot say this, {problem.message}") from problem
    if found != wanted:
        pairs = zip(wanted, found, strict=False)
        other = next((have for have, read in pairs if have != read), wanted[-1])
        raise unsaid(noun, other)
    return text


def unsaid(noun: str, operation: Operation) -> UsageError:
    """Return the error for an operation that a format has no words for."""
    return inexpressible(f"'{operation.path}': {noun} cannot say this change")
