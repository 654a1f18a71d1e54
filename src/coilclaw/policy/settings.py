"""Files of the workspace that hold secrets by their name, and what reading them means."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from coilclaw.kernel import Risk
from coilclaw.policy.judgement import Autonomy, PolicyFinding

if TYPE_CHECKING:
    from coilclaw.kernel import Place
    from coilclaw.policy.commands.policy_rules import CommandRules


SecretReading: TypeAlias = Literal["allow", "ask", "deny"]
READINGS: Final[tuple[SecretReading, ...]] = get_args(SecretReading)
RULE: Final = "path.secret"
NAMES: Final = (
    *(".env*", "!.env.example", "!.env.sample", "!.env.template", "!.env.dist", "!.env.defaults"),
    *("*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.ppk"),
    *("id_*", "!id_*.*", "id_rsa.*", "id_dsa.*", "id_ecdsa.*", "id_ed25519.*", "!*.pub"),
    *("*credentials*", "!*credentials*.*", "*credentials*.json", "*credentials*.y*ml"),
    *("*credentials*.toml", "*credentials*.ini", "*credentials*.xml", "*credentials*.txt"),
    *("*credentials*.csv", "*credentials*.enc", "*credentials*.properties"),
    *(".npmrc", ".netrc", "_netrc", ".pypirc", ".pgpass", ".git-credentials", ".htpasswd"),
)
"""Patterns for the last name of a path. As in a ``.gitignore`` the last one that matches decides,
and ``!`` takes back."""


@dataclass(frozen=True, slots=True)
class SecretFiles:
    """Which files hold secrets, and whether they may be read."""

    read: SecretReading = "ask"
    names: tuple[str, ...] = NAMES

    def holds(self, name: str) -> bool:
        """Whether a file of this name holds secrets."""
        held = False
        plain = name.casefold()
        for pattern in self.names:
            bare = pattern.removeprefix("!").casefold()
            if fnmatchcase(plain, bare):
                held = bare == pattern.casefold()
        return held

    def covers(self, path: str) -> bool:
        """Whether reading a file at a path is more than reading."""
        return self.read != "allow" and self.holds(path.rstrip("/").rpartition("/")[2])

    def judge(self, place: Place) -> PolicyFinding | None:
        """Say what reading a file means, where it is one of these."""
        if place.kind == "directory" or not any(
            self.covers(path) for path in (place.lexical, place.real or "")
        ):
            return None
        reason = f"{place.given!r} holds secrets, by its name"
        if self.read == "deny":
            return PolicyFinding(Risk.HIGH, RULE, reason, forbidden=True)
        return PolicyFinding(Risk.MEDIUM, RULE, reason, asks=True)


USUAL: Final = SecretFiles()
"""What holds without a word about it."""


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
