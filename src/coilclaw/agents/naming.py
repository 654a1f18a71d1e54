"""``RunnerName``: how a person names who shall perform."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from coilclaw.errors import UsageError

Kind: TypeAlias = Literal[
    "builtin", "code-commit", "scripted", "process", "codex", "codex-exec", "opencode", "acp"
]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
MAX_NAME: Final = 32 * 2**10

_ARGUMENTS: Final = {
    "scripted": "FILE.json",
    "process": '"PROGRAM ARGUMENT…"',
    "acp": '"PROGRAM ARGUMENT…"',
}
"""What stands behind the colon; the others have none."""


@dataclass(frozen=True, slots=True)
class RunnerName:
    """A runner as a person names it; ``argument`` is what stands behind the colon."""

    kind: Kind
    argument: str = ""

    @property
    def argv(self) -> tuple[str, ...]:
        """The words of a ``process`` or ``acp``: split as a shell would, and never read by one."""
        return tuple(shlex.split(self.argument))

    def __str__(self) -> str:
        return f"{self.kind}:{self.argument}" if self.argument else self.kind


def parse(text: str) -> RunnerName:
    """Read a name; an unknown one is answered with the list."""
    kind, colon, argument = text.partition(":")
    if kind not in KINDS or len(text) > MAX_NAME:
        raise UsageError(
            f"there is no runner {text[:200]!r}", rule="runner.unknown", hint=f"use {listed()}"
        )
    form = _ARGUMENTS.get(kind)
    if form is None and colon:
        raise UsageError(f"the runner {kind} takes nothing behind its name", rule="runner.argument")
    name = RunnerName(kind, argument.strip())
    if form is not None and not name.argument:
        raise UsageError(
            f"the runner {kind} needs something behind its name",
            rule="runner.argument",
            hint=f"write {kind}:{form}",
        )
    if kind in ("process", "acp"):
        _check_words(name)
    return name


def listed() -> str:
    """Every name in its form, for a person."""
    return ", ".join(f"{kind}:{_ARGUMENTS[kind]}" if kind in _ARGUMENTS else kind for kind in KINDS)


def _check_words(name: RunnerName) -> None:
    try:
        words = name.argv
    except ValueError as problem:
        raise UsageError(
            f"the command of the runner cannot be split: {problem}", rule="runner.argument"
        ) from problem
    if not words or not words[0] or any("\0" in word for word in words):
        raise UsageError("the command of the runner names no program", rule="runner.argument")
