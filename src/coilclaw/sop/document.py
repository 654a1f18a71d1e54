"""A SOP as it was written: its stages, and what each of them does."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.domain.messages import Json
    from coilclaw.sop.conditions import Condition
    from coilclaw.sop.inputs import InputSpec
    from coilclaw.sop.problem import Place

Kind: TypeAlias = Literal["tool", "agent", "approval"]

KINDS: Final[tuple[Kind, ...]] = ("tool", "agent", "approval")
MAX_RETRIES: Final = 10
MAX_RETRY_DELAY_S: Final = 3600
ITEM: Final = "item"
"""What a stage with ``for_each`` calls the item of the round."""
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
    retries: int = 0
    """Attempts after the first one, when it fails."""
    retry_delay_s: float = 0.0
    for_each: tuple[Json, ...] | str | None = None
    """The items of a loop: a list, or the stage or input that they are taken from."""
    parallel: bool = False
    """Whether it runs beside its neighbours that say so too."""
    item: tuple[Json, ...] = ()
    """The one item of this round, where the stage is a round of a loop."""

    def round(self, index: int, item: Json) -> Stage:
        """Return one round of this loop as a stage of its own."""
        return replace(self, id=f"{self.id}.{index}", for_each=None, item=(item,))


@dataclass(frozen=True, slots=True)
class Sop:
    """A whole SOP, and the text it was read from."""

    name: str
    description: str
    stages: tuple[Stage, ...]
    text: str
    hash: str
    """SHA-256 of the bytes of the file."""
    inputs: Mapping[str, InputSpec] = field(default_factory=dict)

    @property
    def groups(self) -> tuple[tuple[Stage, ...], ...]:
        """The stages in order; neighbours that run in parallel stand together."""
        found: list[tuple[Stage, ...]] = []
        for stage in self.stages:
            if stage.parallel and found and found[-1][-1].parallel:
                found[-1] = (*found[-1], stage)
            else:
                found.append((stage,))
        return tuple(found)

    def before(self, stage: Stage) -> tuple[Stage, ...]:
        """Return the stages that have ended when a stage begins."""
        earlier: list[Stage] = []
        for group in self.groups:
            if stage.id.partition(".")[0] in [one.id for one in group]:
                break
            earlier += group
        return tuple(earlier)
