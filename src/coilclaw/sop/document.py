"""A SOP as it was written: its stages, and what each of them does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.domain.messages import Json
    from coilclaw.sop.conditions import Condition
    from coilclaw.sop.problem import Place

Kind: TypeAlias = Literal["tool", "agent", "approval"]

KINDS: Final[tuple[Kind, ...]] = ("tool", "agent", "approval")
MAX_RETRIES: Final = 10
FROM: Final = "_from"
"""``content_from = "stage"`` fills ``content`` with what that stage put out."""


@dataclass(frozen=True, slots=True)
class OnFailure:
    """What happens when a stage fails; a retry that fails for the last time aborts."""

    what: Literal["abort", "continue", "retry"] = "abort"
    times: int = 0

    def __str__(self) -> str:
        return f"retry({self.times})" if self.what == "retry" else self.what


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage; ``place`` is where it stands in the file."""

    id: str
    kind: Kind
    place: Place
    tool: str = ""
    args: Mapping[str, Json] = field(default_factory=dict)
    prompt: str = ""
    when: Condition | None = None
    on_failure: OnFailure = field(default_factory=OnFailure)


@dataclass(frozen=True, slots=True)
class Sop:
    """A whole SOP, and the text it was read from."""

    name: str
    description: str
    stages: tuple[Stage, ...]
    text: str
    hash: str
    """SHA-256 of the bytes of the file."""
