"""Choose the model to ask, its address and the file with its key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from coilclaw.kernel import UsageError
from coilclaw.models import Falling, ModelEndpoint, Retrying, RetryPolicy, make_wire
from coilclaw.policy import KEY_FILES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coilclaw.kernel import Provider, Secret


Kind = Literal["gemini", "openai", "anthropic"]

DEFAULT_MODEL: Final = "gemini-2.5-pro"


VENDORS: Final[dict[Kind, tuple[str, tuple[str, ...]]]] = {
    "gemini": ("https://generativelanguage.googleapis.com", ("gemini-",)),
    "openai": ("https://api.openai.com", ("gpt-", "o1", "o3", "o4")),
    "anthropic": ("https://api.anthropic.com", ("claude-",)),
}
"""Each supported provider: its address, and the prefixes of its model names.

``COILCLAW_KIND_BASE_URL`` replaces the address; the key is in ``kind-key.txt``.
"""
assert tuple(f"{kind}-key.txt" for kind in VENDORS) == KEY_FILES


@dataclass(frozen=True, slots=True)
class ModelTarget:
    """A model with its protocol, its address and the file with its key, if any."""

    model: str
    kind: Kind
    base_url: str
    key_file: str | None


def choose_target(
    model: str,
    environ: Mapping[str, str],
    *,
    base_url: str | None = None,
    key_file: str | None = None,
) -> ModelTarget:
    """Return the target for a model name, or for a custom address, which gets only its own key.

    Raise ``UsageError`` for an unknown model or an invalid key file.
    """
    if base_url is not None:
        if key_file in KEY_FILES:
            raise UsageError(
                f"{key_file} is the key of a provider and is not sent to another address",
                rule="model.key_file",
            )
        return ModelTarget(model, "openai", base_url, key_file)
    if key_file is not None:
        raise UsageError(
            "--key-file is only valid with --base-url",
            rule="model.key_file",
            hint="known models have their own key files",
        )
    for kind, (usual, prefixes) in VENDORS.items():
        if model.startswith(prefixes):
            address = environ.get(f"COILCLAW_{kind.upper()}_BASE_URL") or usual
            return ModelTarget(model, kind, address, f"{kind}-key.txt")
    raise UsageError(
        f"no provider is known for the model {model!r}",
        rule="model.unknown",
        hint="use gemini-…, gpt-…, claude-…, or name an endpoint with --base-url URL",
    )


def provider_of(
    targets: tuple[ModelTarget, ...],
    keys: Mapping[str, Secret],
    *,
    timeout_s: float,
    redact: Callable[[str], str],
    report: Callable[[str], None],
) -> Provider:
    """Return the provider that asks the targets in order."""
    choices = []
    for target in targets:
        endpoint = ModelEndpoint(
            name=target.model,
            base_url=target.base_url,
            key=keys[target.key_file] if target.key_file else None,
            timeout_s=timeout_s,
            redact=redact,
        )
        wire = make_wire(target.kind, endpoint, target.model)
        choices.append((Retrying(wire, RetryPolicy(), report), target.model))
    return Falling(tuple(choices), report)
