"""``Finding``: what one rule says about one effect, before the autonomy level has its say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coilclaw.domain.verdict import Risk


@dataclass(frozen=True, slots=True)
class Finding:
    """How risky a thing is, by which rule; what is ``forbidden`` no level allows."""

    risk: Risk
    rule: str
    reason: str
    forbidden: bool = False
    asks: bool = False
    """Whether a person is asked even where the level would let it run."""
