"""A model to ask, wired from its target: wire, address, key, retries and fallbacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coilclaw.providers.endpoint import Endpoint
from coilclaw.providers.fallback import Falling
from coilclaw.providers.retry import Retrying, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coilclaw.codecommit.models import Target
    from coilclaw.domain.messages import Provider
    from coilclaw.domain.secret import Secret


def provider_of(
    targets: tuple[Target, ...],
    keys: Mapping[str, Secret],
    *,
    timeout_s: float,
    redact: Callable[[str], str],
    report: Callable[[str], None],
) -> Provider:
    """Make the provider that asks the targets in order."""
    choices = tuple(
        (
            Retrying(
                _wire(target, _endpoint(target, keys, timeout_s, redact)), RetryPolicy(), report
            ),
            target.model,
        )
        for target in targets
    )
    return Falling(choices, report)


def _endpoint(
    target: Target, keys: Mapping[str, Secret], timeout_s: float, redact: Callable[[str], str]
) -> Endpoint:
    return Endpoint(
        name=target.model,
        base_url=target.base_url,
        key=keys[target.key_file] if target.key_file else None,
        timeout_s=timeout_s,
        redact=redact,
    )


def _wire(target: Target, endpoint: Endpoint) -> Provider:
    from coilclaw.providers.anthropic import Anthropic
    from coilclaw.providers.gemini import Gemini
    from coilclaw.providers.openai import OpenAI

    match target.kind:
        case "gemini":
            return Gemini(endpoint, target.model)
        case "anthropic":
            return Anthropic(endpoint, target.model)
        case "openai":
            return OpenAI(endpoint, target.model)
