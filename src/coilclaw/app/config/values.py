"""The configuration, read: one value per section, defaults filled in, paths expanded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from coilclaw.agent import DEFAULT_EVERY, AgentLimits
from coilclaw.policy import FORBIDDEN_COMMANDS, Autonomy
from coilclaw.workspace import SandboxView

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from coilclaw.agent import CheckpointPlace, McpServer, PluginSettings, SearchSettings
    from coilclaw.models import ProviderSettings
    from coilclaw.workspace import Kind

DEFAULT_TOOLS: Final = (
    "time",
    "file_list",
    "file_read",
    "file_write",
    "apply_changes",
    "shell",
    "http",
    "memory_search",
    "ask_user",
    "pdf_extract",
    "web_search",
    "plugin:*",
    "mcp:*",
)
"""``plugin:NAME`` and ``mcp:NAME`` stand for all tools of one plugin or server, ``*`` for any."""


@dataclass(frozen=True, slots=True)
class Security:
    """``[security]``."""

    autonomy: Autonomy = Autonomy.SUPERVISED
    workspace_only: bool = True
    forbidden_paths: tuple[Path, ...] = ()
    """Expanded and absolute; links are not followed yet."""
    forbidden_commands: tuple[str, ...] = FORBIDDEN_COMMANDS
    allowed_commands: tuple[str, ...] = ()
    allowed_domains: tuple[str, ...] = ()
    harmless_commands: bool = True
    sandbox: Kind = "auto"
    audit_log: bool = True


@dataclass(frozen=True, slots=True)
class CliChannel:
    """``[channels.cli]``."""

    enabled: bool = True
    tools_allow: tuple[str, ...] = DEFAULT_TOOLS


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """``[memory]``."""

    path: Path
    backend: Literal["sqlite"] = "sqlite"


@dataclass(frozen=True, slots=True)
class ReceiptSettings:
    """``[receipts]``."""

    path: Path
    enabled: bool = True
    checkpoint: CheckpointPlace | None = None
    checkpoint_every: int = DEFAULT_EVERY


@dataclass(frozen=True, slots=True)
class GatewaySection:
    """``[gateway]``; what is absent is the gateway's own to decide."""

    host: str | None = None
    port: int | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    allowed_hosts: tuple[str, ...] = ()
    requests_per_minute: int | None = None
    max_body_bytes: int | None = None
    self_approval: bool | None = None
    completions_approval: str | None = None
    completions_wait_s: float | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """The whole of ``config.toml``."""

    path: Path
    workspace_dir: Path
    default_provider: str
    default_model: str
    security: Security
    providers: Mapping[str, ProviderSettings]
    memory: MemorySettings
    receipts: ReceiptSettings
    sandbox: SandboxView = field(default_factory=SandboxView)
    """``[sandbox]``."""
    cli: CliChannel = field(default_factory=CliChannel)
    limits: AgentLimits = field(default_factory=AgentLimits)
    gateway: GatewaySection = field(default_factory=GatewaySection)
    web_search: SearchSettings | None = None
    plugins: Mapping[str, PluginSettings] = field(default_factory=dict)
    mcp_servers: Mapping[str, McpServer] = field(default_factory=dict)
    warnings: tuple[str, ...] = field(default=(), compare=False)
    """What works and is doubtful: who else can change the file, state inside the workspace."""
