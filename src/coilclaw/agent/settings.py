"""The settings of the agent, as the configuration holds them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from coilclaw.agent.tools.contract import ToolLimits
from coilclaw.kernel import Budget, Risk

DEFAULT_TOOL_ROUNDS: Final = 5
DEFAULT_RESPONSE_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True)
class AgentLimits:
    """``[limits]`` of the configuration."""

    max_tool_rounds: int = DEFAULT_TOOL_ROUNDS
    max_response_bytes: int = DEFAULT_RESPONSE_BYTES
    tools: ToolLimits = field(default_factory=ToolLimits)

    @property
    def budget(self) -> Budget:
        """What one turn may use."""
        return Budget(tool_rounds=self.max_tool_rounds, bytes=self.max_response_bytes)


SearchProvider: TypeAlias = Literal["brave", "tavily", "searxng"]

ENDPOINTS: Final = {
    "brave": "https://api.search.brave.com/res/v1/web/search",
    "tavily": "https://api.tavily.com/search",
}
"""Where the services are; searxng is wherever somebody runs it."""


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """``[web_search]`` of the configuration; without a provider there is no search."""

    provider: SearchProvider | None = None
    api_key_env: str = ""
    """The variable that holds the key; the key itself never stands in a file of ours."""
    base_url: str = ""
    """The address of the endpoint, where it is not the vendor's; searxng always needs it."""

    @property
    def endpoint(self) -> str:
        """The address that is asked, or nothing where it is not known."""
        return self.base_url or ENDPOINTS.get(self.provider or "", "")


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """``[plugins.NAME]`` of the configuration."""

    risk: Risk = Risk.HIGH
    """How far the plugin is trusted; what it declares can make a call riskier, never safer."""
    network: bool = False
    """Whether a tool that declares ``network`` gets it; without this such a tool is denied."""
    memory_mb: int = 1024
    """Memory of a call, with all of its processes; one process alone may not have more either."""
    processes: int = 64
    """Processes of a call at once."""
