"""The settings of the agent in the configuration."""

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
        """The budget of one turn."""
        return Budget(tool_rounds=self.max_tool_rounds, bytes=self.max_response_bytes)


SearchProvider: TypeAlias = Literal["brave", "tavily", "searxng"]

ENDPOINTS: Final = {
    "brave": "https://api.search.brave.com/res/v1/web/search",
    "tavily": "https://api.tavily.com/search",
}
"""The addresses of the services; searxng has none of its own."""


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """``[web_search]`` of the configuration; without a provider, search is off."""

    provider: SearchProvider | None = None
    api_key_env: str = ""
    """The variable that holds the key; the key itself is never stored in the configuration."""
    base_url: str = ""
    """The address of the endpoint, if it is not the vendor's; searxng always needs it."""

    @property
    def endpoint(self) -> str:
        """The address of the service, or an empty text if it is unknown."""
        return self.base_url or ENDPOINTS.get(self.provider or "", "")


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """``[plugins.NAME]`` of the configuration."""

    risk: Risk = Risk.HIGH
    """The risk of every call; declared effects can only raise it."""
    network: bool = False
    """Whether tools may use the network; otherwise a tool that declares ``network`` is denied."""
    memory_mb: int = 1024
    """Memory of a call, for all of its processes together."""
    processes: int = 64
    """Simultaneous processes of a call."""
