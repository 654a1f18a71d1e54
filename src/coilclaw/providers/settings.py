"""The settings of one model, as a configuration names it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Kind: TypeAlias = Literal[
    "mock", "openai-compatible", "gemini", "anthropic", "reliable", "router", "recorded"
]
KINDS: Final[tuple[str, ...]] = get_args(Kind)

Mode: TypeAlias = Literal["record", "play"]
DEFAULT_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """One entry of ``[providers.models.NAME]``; which fields count depends on the kind."""

    name: str
    kind: Kind
    model: str = ""
    base_url: str | None = None
    api_key_env: str | None = None
    api_key_file: Path | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S
    temperature: float | None = None
    fixture: Path | None = None
    """Of ``mock``: the answers to play."""
    providers: tuple[str, ...] = ()
    """Of ``reliable``: who is asked, in order."""
    routes: Mapping[str, str] = field(default_factory=dict)
    """Of ``router``: hint → name."""
    default: str | None = None
    """Of ``router``: who is asked without a hint."""
    provider: str | None = None
    """Of ``recorded``: whose exchanges are recorded."""
    file: Path | None = None
    """Of ``recorded``: where."""
    mode: Mode = "record"
