"""Which model is asked, where it lives and which file holds its key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from coilclaw.errors import UsageError
from coilclaw.security.protected import KEY_FILES

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["gemini", "openai", "anthropic"]

DEFAULT_MODEL: Final = "gemini-2.5-pro"


@dataclass(frozen=True, slots=True)
class Vendor:
    """One supported provider."""

    kind: Kind
    base_url: str
    variable: str
    """Replaces scheme, host and prefix of the address."""
    key_file: str
    prefixes: tuple[str, ...]
    """What the names of its models begin with."""


VENDORS: Final = (
    Vendor(
        "gemini",
        "https://generativelanguage.googleapis.com",
        "COILCLAW_GEMINI_BASE_URL",
        "gemini-key.txt",
        ("gemini-",),
    ),
    Vendor(
        "openai",
        "https://api.openai.com",
        "COILCLAW_OPENAI_BASE_URL",
        "openai-key.txt",
        ("gpt-", "o1", "o3", "o4"),
    ),
    Vendor(
        "anthropic",
        "https://api.anthropic.com",
        "COILCLAW_ANTHROPIC_BASE_URL",
        "anthropic-key.txt",
        ("claude-",),
    ),
)
assert tuple(vendor.key_file for vendor in VENDORS) == KEY_FILES


@dataclass(frozen=True, slots=True)
class Target:
    """A model to ask: its wire, its address, and where its key is, if it has one."""

    model: str
    kind: Kind
    base_url: str
    key_file: str | None


def target(
    model: str,
    environ: Mapping[str, str],
    *,
    base_url: str | None = None,
    key_file: str | None = None,
) -> Target:
    """Choose by the model's name, or by an address of one's own, which gets no other key."""
    if base_url is not None:
        if key_file in KEY_FILES:
            raise UsageError(
                f"{key_file} is the key of a provider, and does not go to another address",
                rule="model.key_file",
            )
        return Target(model, "openai", base_url, key_file)
    if key_file is not None:
        raise UsageError(
            "--key-file goes with --base-url",
            rule="model.key_file",
            hint="the known models have theirs",
        )
    for vendor in VENDORS:
        if model.startswith(vendor.prefixes):
            address = environ.get(vendor.variable) or vendor.base_url
            return Target(model, vendor.kind, address, vendor.key_file)
    raise UsageError(
        f"no provider is known for the model {model!r}",
        rule="model.unknown",
        hint="use gemini-…, gpt-…, claude-…, or name an endpoint with --base-url URL",
    )
