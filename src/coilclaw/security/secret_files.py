"""Files of the workspace that hold secrets by their name, and what reading them means."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from coilclaw.domain.verdict import Risk
from coilclaw.security.finding import Finding

if TYPE_CHECKING:
    from coilclaw.domain.effects import Place

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

    def judge(self, place: Place) -> Finding | None:
        """Say what reading a file means, where it is one of these."""
        if place.kind == "directory" or not any(
            self.covers(path) for path in (place.lexical, place.real or "")
        ):
            return None
        reason = f"{place.given!r} holds secrets, by its name"
        if self.read == "deny":
            return Finding(Risk.HIGH, RULE, reason, forbidden=True)
        return Finding(Risk.MEDIUM, RULE, reason, asks=True)


USUAL: Final = SecretFiles()
"""What holds without a word about it."""
