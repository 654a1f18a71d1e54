"""The table of model services; a new service is one entry here and one module that speaks it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.kernel import Provider
    from coilclaw.models.endpoint import ModelEndpoint


@dataclass(frozen=True, slots=True)
class ModelService:
    """What is known of a service before it is configured."""

    module: str
    wire: str
    """The class of the module that speaks the protocol, a ``ModelWire``."""
    key_variable: str
    model_variable: str
    example: str
    """Helps a user who is asked for the name of a model."""
    base_url: str | None = None
    """The address of the vendor; its usual key goes to no other address."""


SERVICES: Final[Mapping[str, ModelService]] = {
    "openai-compatible": ModelService(
        "openai", "OpenAI", "OPENAI_API_KEY", "OPENAI_MODEL", "as your server calls it"
    ),
    "gemini": ModelService(
        *("gemini", "Gemini", "GEMINI_API_KEY", "GEMINI_MODEL", "such as gemini-2.5-pro"),
        base_url="https://generativelanguage.googleapis.com",
    ),
    "anthropic": ModelService(
        "anthropic",
        *("Anthropic", "ANTHROPIC_API_KEY", "ANTHROPIC_MODEL", "such as claude-sonnet-4-5"),
        base_url="https://api.anthropic.com",
    ),
}
KINDS: Final = ("mock", *SERVICES, "reliable", "router", "recorded")
"""Every kind of provider that a configuration can name."""


def find_usual_variable(kind: str) -> str | None:
    """Return the variable of the key that goes to the address of a vendor, if ``kind`` has one."""
    service = SERVICES.get(kind)
    return service.key_variable if service is not None and service.base_url else None


def make_wire(
    kind: str, endpoint: ModelEndpoint, model: str, temperature: float | None = None
) -> Provider:
    """Make the provider that speaks the protocol of a service; unknown kinds speak OpenAI's."""
    service = SERVICES.get(kind, SERVICES["openai-compatible"])
    module = import_module(f"coilclaw.models.{service.module}")
    wire: Provider = getattr(module, service.wire)(endpoint, model, temperature=temperature)
    return wire
