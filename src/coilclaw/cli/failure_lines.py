"""What failed in a run, as lines for people: refusals of gates, and the end of failed commands."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final, TypeVar

from coilclaw.cli.console import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator
    from pathlib import Path

    from coilclaw.app.run_failures import FailedCommand, Refusal

T = TypeVar("T")
MAX_CHARS: Final = 600
"""Of a gate's sentence, and of a command line."""


def refusal_sentence(refusal: Refusal) -> str:
    """Say which gate refused what, by which rule, as it happens."""
    return cut(f"REFUSED by the {refusal.gate.replace('_', ' ')}: {_reason(refusal)}")


def refusal_line(refusal: Refusal) -> str:
    """Say which gate refused what of whom, by which rule, when all is over."""
    return cut(f"{refusal.gate} of {refusal.task_id or 'the run'}: {_reason(refusal)}")


def _reason(refusal: Refusal) -> str:
    named = refusal.path and refusal.path not in refusal.reason
    return f"{refusal.rule}: {refusal.reason}" + (f" ({refusal.path})" if named else "")


def cut(text: str) -> str:
    """Return a bounded text in which nothing can act on a terminal."""
    shown = visible(text)
    return shown if len(shown) <= MAX_CHARS else f"{shown[:MAX_CHARS]}…"


def command_lines(command: FailedCommand, directory: Path) -> Iterator[str]:
    """Yield what a failed command was, and the last lines of what it wrote, with the log's path."""
    for log in command.logs:
        yield f"the last lines of {directory / log.path}:"
        for line in log.lines:
            yield f"  | {visible(line)}"
    if not command.logs:
        yield f"it wrote nothing: {cut(shlex.join(command.argv) or command.name)}"


def count_alike(items: Iterable[T], key: Callable[[T], Hashable]) -> list[tuple[T, str]]:
    """Return the last item of each kind, and how often there was one where it was more than once.

    Each attempt is refused for itself, often for the same reason.
    """
    kinds: dict[Hashable, list[T]] = {}
    for item in items:
        kinds.setdefault(key(item), []).append(item)
    return [(alike[-1], f" ({len(alike)} times)" * (len(alike) > 1)) for alike in kinds.values()]
