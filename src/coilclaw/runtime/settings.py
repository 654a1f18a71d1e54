"""The guardrails of the loop, by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from coilclaw.domain.budget import Budget
from coilclaw.tools.contract import ToolLimits

DEFAULT_TOOL_ROUNDS: Final = 5
DEFAULT_RESPONSE_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True)
class Limits:
    """``[limits]`` of the configuration."""

    max_tool_rounds: int = DEFAULT_TOOL_ROUNDS
    max_response_bytes: int = DEFAULT_RESPONSE_BYTES
    tools: ToolLimits = field(default_factory=ToolLimits)

    @property
    def budget(self) -> Budget:
        """What one turn may use."""
        return Budget(tool_rounds=self.max_tool_rounds, bytes=self.max_response_bytes)
