"""The security settings of a workspace: what the configuration says, with all paths absolute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.security.autonomy import Autonomy
from coilclaw.security.secret_files import USUAL, SecretFiles

if TYPE_CHECKING:
    from coilclaw.security.commandrules import CommandRules

FORBIDDEN_PATHS: Final = ("/etc", "/sys", "/boot", "~/.ssh")
FORBIDDEN_COMMANDS: Final = ("rm", "shutdown", "reboot", "mkfs", "dd")


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """Everything that policy is asked with; a value, so that others can pass their own."""

    workspace: str
    """The real path of the workspace."""
    rules: CommandRules | None
    """What the policy file says, with its examples checked; without them no command is allowed."""
    autonomy: Autonomy = Autonomy.SUPERVISED
    workspace_only: bool = True
    forbidden_paths: tuple[str, ...] = ()
    """Absolute, both as configured and with links followed."""
    own_paths: tuple[str, ...] = ()
    """Our own state: no tool reads or writes it."""
    forbidden_commands: tuple[str, ...] = FORBIDDEN_COMMANDS
    allowed_commands: tuple[str, ...] = ()
    """``binary [flags…]`` entries beside those of the policy file."""
    allowed_domains: tuple[str, ...] = ()
    harmless_commands: bool = True
    """Whether the harmless class exists; it needs a sandbox that really holds."""
    contained: bool = False
    """Whether bubblewrap works, which the rule ``allow.contained`` needs."""
    secrets: SecretFiles = USUAL
    """Which files of the workspace hold secrets, and whether they may be read."""
