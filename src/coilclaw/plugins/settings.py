"""What the user says about one plugin."""

from __future__ import annotations

from dataclasses import dataclass

from coilclaw.domain.verdict import Risk


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
