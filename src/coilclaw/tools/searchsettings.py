"""Whom ``web_search`` asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

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
