"""What is known of agents that speak ACP: their variables, their settings, and their models."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.agents import acpprocess
from coilclaw.agents.codexdoor import Target
from coilclaw.errors import DeniedError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class AcpAgent:
    """One agent; one that is not known has only its name."""

    title: str
    keys: tuple[str, ...] = ()
    """Variables that hold its key. Commands that the agent starts can read them."""
    address: str = ""
    """The variable that holds the address of its model."""
    hosts: tuple[str, ...] = ()
    """Where its model is, if the variable is not set."""
    fixed: Mapping[str, str] = field(default_factory=dict)
    """Variables that keep it from doing what nobody asked for."""
    folder: tuple[str, str] | None = None
    """The variable that names the directory of its state, and its name below the home."""

    @property
    def variables(self) -> tuple[str, ...]:
        return (*self.keys, *((self.address,) if self.address else ()))

    def settings(self, home: Path) -> dict[str, str]:
        """Return the variables that are set for it."""
        own = {self.folder[0]: str(home / self.folder[1])} if self.folder is not None else {}
        return {**self.fixed, **own}


AGENTS: Final[Mapping[str, AcpAgent]] = {
    "gemini": AcpAgent(
        "Gemini CLI",
        keys=("GEMINI_API_KEY",),
        address="GOOGLE_GEMINI_BASE_URL",
        hosts=("generativelanguage.googleapis.com",),
    ),
    "claude-agent-acp": AcpAgent(
        "Claude Code",
        keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        address="ANTHROPIC_BASE_URL",
        hosts=("api.anthropic.com",),
        fixed={
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            # It is in one; as root it would not start without being told so.
            "IS_SANDBOX": "1",
        },
        folder=("CLAUDE_CONFIG_DIR", ".claude"),
    ),
    "codex-acp": AcpAgent(
        "Codex",
        keys=("OPENAI_API_KEY", "CODEX_API_KEY"),
        hosts=("api.openai.com", "auth.openai.com", "chatgpt.com"),
    ),
}
"""By the name of the program."""


def of(program: Path) -> AcpAgent:
    """Return what is known of a program."""
    return AGENTS.get(program.name) or AcpAgent(program.name)


def targets(
    agent: AcpAgent, addresses: tuple[str, ...], environ: Mapping[str, str]
) -> tuple[Target, ...]:
    """Return where the model of an agent is; where that is not known, nothing can be reached."""
    named = environ.get(agent.address, "") if agent.address else ""
    found = [
        acpprocess.target_of(address) for address in (*addresses, *((named,) if named else ()))
    ]
    if not found:
        found = [Target(host, 443) for host in agent.hosts]
    if not found:
        raise DeniedError(
            f"The network is denied, and it is not known where the model of {agent.title} is.",
            rule="acp.route",
            hint="Allow the network for this agent.",
        )
    return tuple(dict.fromkeys(found))
